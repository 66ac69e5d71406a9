from xml.etree import ElementTree

from explainfix.explanation.check import CheckReport, Finding
from explainfix.report.junit import junit_text


def test_counts_cases_and_failures():
    findings = (
        Finding("dead", "a", ok=True, text="alive"),
        Finding("drift", "a", ok=False, text="too far"),
        Finding("dead", "b", ok=True, text="alive"),
    )
    root = ElementTree.fromstring(junit_text(CheckReport("net", findings), 1.5).encode())
    (suite,) = root
    assert (root.tag, suite.tag) == ("testsuites", "testsuite")
    assert (suite.get("tests"), suite.get("failures"), suite.get("time")) == ("3", "1", "1.500")
    cases = [(case.get("classname"), case.get("name"), len(case)) for case in suite]
    assert cases == [
        ("explainfix.dead", "a", 0),
        ("explainfix.drift", "a", 1),
        ("explainfix.dead", "b", 0),
    ]
    failure = suite[1][0]
    assert (failure.tag, failure.get("message"), failure.text) == (
        "failure",
        "too far",
        "a: too far",
    )


def test_names_of_any_kind_stay_text():
    name = "</testcase>&\"'\x00\x1b[31m\ud800"
    report = CheckReport(name, (Finding("dead", name, ok=False, text=name),))
    case = ElementTree.fromstring(junit_text(report).encode())[0][0]
    assert case.get("name") == "</testcase>&\"'??[31m?"
    assert len(case) == 1
