"""A check as JUnit XML, which continuous integration reads: a test case per check and layer."""

from __future__ import annotations

import re
from xml.etree import ElementTree

from ..explanation.check import CheckReport

_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit_text(report: CheckReport, seconds: float = 0.0) -> str:
    """The report as a document of one suite.

    >>> from explainfix.explanation.check import Finding
    >>> report = CheckReport("net", (Finding("dead", "conv1", False, "all 9 kernels are zero"),))
    >>> print(junit_text(report).splitlines()[3].strip())
    <testcase classname="explainfix.dead" name="conv1" time="0.000">
    """
    counts = {
        "tests": str(len(report.findings)),
        "failures": str(len(report.failures)),
        "errors": "0",
        "time": f"{seconds:.3f}",
    }
    root = ElementTree.Element("testsuites", {"name": "explainfix", **counts})
    suite = ElementTree.SubElement(
        root, "testsuite", {"name": _clean(report.title), "skipped": "0", **counts}
    )
    for finding in report.findings:
        names = {
            "classname": f"explainfix.{finding.check}",
            "name": _clean(finding.layer) or "(the model)",
            "time": "0.000",
        }
        case = ElementTree.SubElement(suite, "testcase", names)
        if not finding.ok:
            failure = {"message": _clean(finding.text), "type": finding.check}
            ElementTree.SubElement(case, "failure", failure).text = _clean(
                f"{finding.layer}: {finding.text}"
            )
    ElementTree.indent(root)
    text = ElementTree.tostring(root, encoding="unicode")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{text}\n'


def _clean(text: str) -> str:
    """Without characters that XML cannot hold."""
    return _NOT_XML.sub("?", text)
