#![allow(clippy::unwrap_used)]
//! The results of functions, one table per family. The corpus (corpus.rs) compares the verdicts with Kubernetes; these tests check the
//! values.

use pointsman_cel::Evaluator;

const OBJECT: &str = r#"{
    "metadata": {"name": "chat", "labels": {"team": "a"}},
    "spec": {"replicas": 3, "whole": 10.0, "large": 9223372036854775808, "memory": "1.5Gi", "none": null,
             "containers": [{"name": "one", "image": "a:1"}, {"name": "two", "image": ""}]}
}"#;

/// The value, or the error.
fn calculated(expression: &str) -> String {
    let mut evaluator = Evaluator::default();
    evaluator.bind([("object".to_owned(), OBJECT.to_owned())]);
    evaluator.calculate(expression).unwrap_or_else(|problem| format!("! {}", problem.message))
}

fn table(cases: &[(&str, &str)]) {
    let wrong: Vec<String> = cases
        .iter()
        .map(|(expression, expected)| (expression, expected, calculated(expression)))
        .filter(|(_, expected, found)| *expected != found)
        .map(|(expression, expected, found)| format!("{expression}\n    {found}, not {expected}"))
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn objects_are_bound_as_kubernetes_binds_them() {
    table(&[
        ("object.spec.replicas + 1", "4"),
        ("type(object.spec.whole) == double", "true"),
        ("type(object.spec.large) == double", "true"),
        ("object.spec.none == null", "true"),
        ("has(object.spec.none)", "true"),
        ("has(object.spec.absent)", "false"),
        ("object.spec.absent", "! no such key: absent"),
        ("object.spec.memory", r#""1.5Gi""#),
        ("object.spec.containers[1].name", r#""two""#),
        ("object.spec.containers[2].name", "! index out of bounds: 2"),
        ("object.metadata.labels", r#"{"team":"a"}"#),
        ("[{'name': 'one', 'image': 'a:1'}] == [object.spec.containers[0]]", "true"),
        ("object.spec.containers == [{'name': 'one', 'image': 'a:1'}, {'name': 'two', 'image': ''}]", "true"),
        ("{'team': 'a'} == object.metadata.labels && object.metadata.labels == {'team': 'a'}", "true"),
        ("{'team': 'a'} in [object.metadata.labels] && object.metadata.labels in [{'team': 'a'}]", "true"),
    ]);
}

#[test]
fn maps_go_by_their_keys() {
    table(&[
        ("{'b': 1, 'a': 2, 'c': 3}.map(k, k)", r#"["a","b","c"]"#),
        ("{'b': 1, 'a': 2}", r#"{"a":2,"b":1}"#),
        ("{1: 'a', 2: 'b'}[dyn(1.0)]", r#""a""#),
        ("{'a': 1, 'a': 2}", r#"{"a":2}"#),
        ("{'b': 1, 'a': 2}.transformList(k, v, k + string(v))", r#"["a2","b1"]"#),
        ("['x', 'y'].transformMap(i, v, v + string(i))", r#"{"0":"x0","1":"y1"}"#),
        ("{'a': 1}.transformMapEntry(k, v, {v: k})", r#"{"1":"a"}"#),
        ("{'a': 1, 'b': 2}.exists(k, v, k == 'b' && v == 2)", "true"),
        ("[5, 6].all(i, v, [1].all(i, v > i))", "true"),
    ]);
}

#[test]
fn arithmetic_knows_its_bounds() {
    table(&[
        ("1 / 0", "! division by zero"),
        ("1 % 0", "! modulus by zero"),
        ("-7 % 3", "-1"),
        ("9223372036854775807 + 1", "! integer overflow"),
        ("0u - 1u", "! unsigned integer overflow"),
        ("-(-9223372036854775808)", "! integer overflow"),
        ("1 < 1.5 && 1u < 2 && dyn(1) == 1.0", "true"),
        ("dyn('a') + 1", "! no such overload"),
        ("dyn([1]) + dyn({'a': 1})", "! no such overload"),
        ("int(1.9) + int('-3')", "-2"),
        ("double('1e-2')", "0.01"),
        ("string(1e21) + ' ' + string(0.1)", r#""1e+21 0.1""#),
    ]);
}

#[test]
fn texts_are_counted_in_characters() {
    table(&[
        ("size('äö')", "2"),
        ("'äöü'.substring(1, 2)", r#""ö""#),
        ("'äöü'.indexOf('ü')", "2"),
        ("'abcabc'.lastIndexOf('abc', 2)", "0"),
        ("'a,b,c'.split(',', 2)", r#"["a","b,c"]"#),
        ("'abc'.split('')", r#"["a","b","c"]"#),
        ("['a', 'b'].join('-')", r#""a-b""#),
        ("'aXbX'.replace('X', '', 1)", r#""abX""#),
        ("strings.quote('a\"b\\n')", r#""\"a\\\"b\\n\"""#),
        ("'%s %d %.2f %x %b %e'.format(['a', 7, 1234.5, 255, 5, 1234.5])", r#""a 7 1,234.50 ff 101 1.234500×10⁰³""#),
        ("'%s'.format([[1, 'a', {'k': 1.5}]])", r#""[1, \"a\", {\"k\":1.500000}]""#),
        ("'a1b22'.findAll('[0-9]+')", r#"["1","22"]"#),
        ("'a1b22'.find('[0-9]{2}')", r#""22""#),
        ("b'\\x01ab'", r#""AWFi""#),
    ]);
}

#[test]
fn times_have_zones() {
    table(&[
        ("timestamp('2024-02-29T23:30:00Z').getDate('Europe/Berlin')", "1"),
        ("timestamp('2024-07-01T00:00:00Z').getHours('America/New_York')", "20"),
        ("timestamp('2100-07-01T00:00:00Z').getHours('+05:30')", "5"),
        ("timestamp('2024-12-31T00:00:00Z').getDayOfYear()", "365"),
        ("timestamp('2024-02-29T00:00:00Z').getDayOfWeek()", "4"),
        ("timestamp('2024-01-01T00:00:00Z').getHours('Nowhere/Else')", "! unknown time zone Nowhere/Else"),
        ("string(timestamp('2024-01-01T00:00:00Z') - duration('1ns'))", r#""2023-12-31T23:59:59.999999999Z""#),
        ("timestamp('9999-12-31T23:59:59Z') + duration('1s')", "! timestamp overflow"),
        ("duration('1h30m').getMinutes()", "90"),
        ("duration('-1.5h')", r#""-5400s""#),
        ("timestamp('2024-03-01T00:00:00Z') - timestamp('2024-02-28T00:00:00Z') == duration('48h')", "true"),
    ]);
}

#[test]
fn lists_and_optionals_have_their_functions() {
    table(&[
        ("[3, 1, 2].sort()", "[1,2,3]"),
        ("object.spec.containers.sortBy(c, c.image).map(c, c.name)", r#"["two","one"]"#),
        ("[1, 2, 3].slice(1, 3)", "[2,3]"),
        ("[1, 2].slice(1, 3)", "! cannot slice(1, 3), list is length 2"),
        ("[[1], [2, 3]].flatten()", "[1,2,3]"),
        ("[1, 1, 2].distinct().reverse()", "[2,1]"),
        ("lists.range(3).sum()", "3"),
        ("dyn([]).max()", "! max called on empty list"),
        ("sets.equivalent([1, 2, 2], [2, 1]) && !sets.intersects([1], [2])", "true"),
        ("[1, 2].first().value() + [1, 2].last().value()", "3"),
        ("object.?spec.?absent.orValue('none')", r#""none""#),
        ("object.?spec.?replicas.optMap(r, r * 2).orValue(0)", "6"),
        ("optional.of(1).orValue(1 / 0)", "1"),
        ("optional.none().value()", "! optional.none() dereference"),
        ("[?optional.none(), ?optional.of(1)]", "[1]"),
        ("{?'a': optional.none(), ?'b': optional.of(1)}", r#"{"b":1}"#),
        ("cel.bind(x, [1, 2], x + x)", "[1,2,1,2]"),
    ]);
}

#[test]
fn kubernetes_types_are_known() {
    table(&[
        ("quantity(object.spec.memory).compareTo(quantity('1536Mi'))", "0"),
        ("quantity('1').add(quantity('500m')).asApproximateFloat()", "1.5"),
        ("quantity('1.5').asInteger()", "! cannot convert value to integer"),
        ("sign(quantity('-1'))", "-1"),
        ("semver('v1.2', true).isGreaterThan(semver('1.2.0-rc.1'))", "true"),
        ("ip('fe80::1').isLinkLocalUnicast() && ip('192.168.0.1').isGlobalUnicast()", "true"),
        ("string(cidr('10.1.2.3/8').masked())", r#""10.0.0.0/8""#),
        ("cidr('10.0.0.0/8').containsCIDR('10.1.0.0/16')", "true"),
        ("url('https://user@example.com:8443/a%20b?x=1&x=2').getQuery()", r#"{"x":["1","2"]}"#),
        ("url('https://[::1]:80/a b').getEscapedPath()", r#""/a%20b""#),
        ("format.dns1123Label().validate('a-b').hasValue()", "false"),
        ("format.named('nothing').hasValue()", "false"),
        ("format.uuid().validate('x').value()", r#"["does not match the UUID format"]"#),
        ("type(quantity('1')) == kubernetes.Quantity", "true"),
        ("{'a': ip('1.2.3.4'), 'b': ip('::1')}", r#"{"a":"1.2.3.4","b":"::1"}"#),
    ]);
}

#[test]
fn positions_that_are_too_large_for_a_short_number_are_beyond_the_end() {
    let cases = [
        ("[1, 2, 3].slice(0, AT)", "! cannot slice(0, AT), list is length 3"),
        ("[1, 2, 3].slice(AT, AT)", "! cannot slice(AT, AT), list is length 3"),
        ("[1, 2, 3].slice(AT, 1)", "! cannot slice(AT, 1), start index must be less than or equal to end index"),
        ("[1, 2, 3].slice(-1, AT)", "! cannot slice(-1, AT), negative indexes not supported"),
        ("'abc'.indexOf('b', AT)", "-1"),
        ("'abc'.indexOf('', AT)", "AT"),
        ("'abc'.lastIndexOf('b', AT)", "-1"),
        ("'abc'.indexOf('b', -AT)", "! index out of range: -AT"),
        ("'abc'.lastIndexOf('b', -AT)", "! index out of range: -AT"),
        ("'abc'.charAt(AT)", "! index out of range: AT"),
        ("'abc'.substring(AT)", "! index out of range: AT"),
        ("'abc'.substring(1, AT)", "! index out of range: AT"),
        ("'aaa'.replace('a', 'b', AT)", r#""bbb""#),
        ("'a,b'.split(',', AT)", r#"["a","b"]"#),
        ("'a1b2'.findAll('[0-9]', AT)", r#"["1","2"]"#),
        ("[1, 2][AT]", "! index out of bounds: AT"),
        ("[1, 2][dyn(AT.0)]", "! index out of bounds: AT"),
        ("[1, 2][?AT].hasValue()", "false"),
    ];
    for at in ["4294967296", "4294967297", "1099511627776", "1000000000000000"] {
        for (expression, expected) in cases {
            table(&[(&expression.replace("AT", at), &expected.replace("AT", at))]);
        }
    }
}
