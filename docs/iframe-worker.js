// Browsers start no worker from a file on disk. There the search runs in a hidden frame instead.
if (location.protocol === "file:") {
  class FrameWorker extends EventTarget {
    constructor(address) {
      super();
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.append(this.frame);
      const inside = this.frame.contentDocument;
      inside.open(); // a document of its own, which no browser puts another in the place of
      inside.write("<!doctype html><body></body>");
      inside.close();
      const self = this.frame.contentWindow;
      self.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      self.importScripts = async (...addresses) => {
        for (const each of addresses) await FrameWorker.run(inside, each);
      };
      this.ready = FrameWorker.run(inside, address);
    }

    static run(page, address) {
      return new Promise((done, failed) => {
        const script = page.createElement("script");
        Object.assign(script, { src: address, onload: done, onerror: failed });
        page.body.append(script);
      });
    }

    async postMessage(data) {
      await this.ready;
      this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data }));
    }

    terminate() {
      this.frame.remove();
    }
  }
  window.Worker = window.IFrameWorker = FrameWorker; // the theme's search asks for the second name
}
