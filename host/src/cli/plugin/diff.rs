//! The differences between two texts, for people.

/// The number of equal lines around different ones.
const CONTEXT: usize = 3;

/// The maximum number of pairs of lines: beyond it, finding the differences takes long, and nobody reads them.
const MAX_DIFF_CELLS: usize = 4_000_000;

/// The lines that only the expected text has (`-`) and only the actual one (`+`), with some context.
pub(super) fn lines(expected: &str, actual: &str) -> Vec<String> {
    let (old, new): (Vec<&str>, Vec<&str>) = (expected.lines().collect(), actual.lines().collect());
    let before = old.iter().zip(&new).take_while(|(a, b)| a == b).count();
    let after = old[before..].iter().rev().zip(new[before..].iter().rev()).take_while(|(a, b)| a == b).count();
    let mut marked: Vec<(char, &str)> = old[..before].iter().map(|line| (' ', *line)).collect();
    marked.extend(middle(&old[before..old.len() - after], &new[before..new.len() - after]));
    marked.extend(old[old.len() - after..].iter().map(|line| (' ', *line)));

    let changed: Vec<usize> = marked.iter().enumerate().filter(|(_, (mark, _))| *mark != ' ').map(|(at, _)| at).collect();
    let mut shown = Vec::new();
    let mut last = None;
    for (at, (mark, line)) in marked.iter().enumerate() {
        let near = changed.partition_point(|change| change + CONTEXT < at);
        if changed.get(near).is_some_and(|change| *change <= at + CONTEXT) {
            if last.is_some_and(|last| last + 1 != at) || (last.is_none() && at > 0) {
                shown.push("  ...".to_owned());
            }
            shown.push(format!("{mark} {line}"));
            last = Some(at);
        }
    }
    if last.is_some_and(|last| last + 1 < marked.len()) {
        shown.push("  ...".to_owned());
    }
    shown
}

/// Uses the longest common subsequence.
fn middle<'a>(old: &[&'a str], new: &[&'a str]) -> Vec<(char, &'a str)> {
    let only = |mark: char, lines: &[&'a str]| lines.iter().map(move |line| (mark, *line)).collect::<Vec<_>>();
    if old.len().saturating_mul(new.len()) > MAX_DIFF_CELLS {
        return [only('-', old), only('+', new)].concat();
    }
    let width = new.len() + 1;
    let mut common = vec![0_u32; (old.len() + 1) * width];
    for (i, a) in old.iter().enumerate().rev() {
        for (j, b) in new.iter().enumerate().rev() {
            common[i * width + j] =
                if a == b { common[(i + 1) * width + j + 1] + 1 } else { common[(i + 1) * width + j].max(common[i * width + j + 1]) };
        }
    }
    let (mut i, mut j, mut marked) = (0, 0, Vec::new());
    while i < old.len() && j < new.len() {
        if old[i] == new[j] {
            marked.push((' ', old[i]));
            (i, j) = (i + 1, j + 1);
        } else if common[(i + 1) * width + j] >= common[i * width + j + 1] {
            marked.push(('-', old[i]));
            i += 1;
        } else {
            marked.push(('+', new[j]));
            j += 1;
        }
    }
    marked.extend(only('-', &old[i..]));
    marked.extend(only('+', &new[j..]));
    marked
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_differs_is_shown_with_a_few_lines_around_it() {
        assert_eq!(lines("a\nb\nc\n", "a\nx\nc\n"), ["  a", "- b", "+ x", "  c"]);
        assert_eq!(lines("a\nb\n", "a\nb\n"), Vec::<String>::new());
        assert_eq!(lines("", "a\n"), ["+ a"]);
        let long: Vec<String> = (0..20).map(|n| n.to_string()).collect();
        let changed = long.join("\n").replace("10", "ten");
        assert_eq!(lines(&long.join("\n"), &changed), ["  ...", "  7", "  8", "  9", "- 10", "+ ten", "  11", "  12", "  13", "  ..."]);
        assert_eq!(lines("a\nb\nc\nd\n", "b\nd\ne\n"), ["- a", "  b", "- c", "  d", "+ e"]);
    }
}
