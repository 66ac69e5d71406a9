(() => {
  // Light and dark: the system's choice, until the reader makes one.
  const button = document.getElementById("theme");
  const system = matchMedia("(prefers-color-scheme: dark)");
  const current = () =>
    document.documentElement.dataset.theme ?? (system.matches ? "dark" : "light");
  const name = () => {
    document.getElementById("theme-name").textContent = current() === "dark" ? "Light" : "Dark";
  };
  button.addEventListener("click", () => {
    const theme = current() === "dark" ? "light" : "dark";
    document.documentElement.dataset.theme = theme;
    try {
      localStorage.setItem("explainfix-theme", theme);
    } catch {
      /* a file may have no storage */
    }
    name();
  });
  system.addEventListener("change", name);
  name();
})();
