//! Regular expressions: RE2's syntax, translated to that of the available engine.
//!
//! No evaluation leaves anything behind for the next. The cost and the success of one therefore don't depend on earlier ones.

use super::args::{Answer, Args, give_bool, give_text, give_texts, int, special, text};
use super::{Function, P, global, member};
use crate::error::fail;
use crate::value::special::Content;
use cel::ExecutionError;
use regex::{Regex, RegexBuilder};

const S: P = P::String;
const MATCHES: &[(&[P], P)] = &[(&[S, S], P::Bool)];
const COMPILED: P = P::Special(<Pattern as Content>::NAME);
/// The maximum repetition, as in RE2.
const MAX_REPEATED: u32 = 1000;
/// The maximum size of a compiled expression, in bytes, and that of one that is stored.
const LARGEST: usize = 1 << 20;
const SMALL: usize = 1 << 16;

pub(crate) const FUNCTIONS: &[Function] = &[
    global("matches", MATCHES, |args| matches(&args, &now(&args)?)),
    member("matches", MATCHES, |args| matches(&args, &now(&args)?)),
    member("find", &[(&[S, S], S)], |args| find(&args, &now(&args)?)),
    member("findAll", &[(&[S, S], P::List(&S)), (&[S, S, P::Int], P::List(&S))], |args| find_all(&args, &now(&args)?)),
    // The functions for calls whose pattern is a literal.
    global("@matches", &[(&[S, COMPILED], P::Bool)], |args| matches(&args, &before(&args)?)),
    global("@find", &[(&[S, COMPILED], S)], |args| find(&args, &before(&args)?)),
    global("@findAll", &[(&[S, COMPILED], P::List(&S)), (&[S, COMPILED, P::Int], P::List(&S))], |args| find_all(&args, &before(&args)?)),
];

/// A pattern that was compiled with its rule.
#[derive(Clone, Debug)]
pub(crate) struct Pattern(Regex);

impl Pattern {
    /// Compiles a pattern, if it is valid and small.
    pub(crate) fn small(pattern: &str) -> Option<Self> {
        build(pattern, SMALL).ok().map(Pattern)
    }

    /// The pattern in the engine's syntax.
    pub(crate) fn as_str(&self) -> &str {
        self.0.as_str()
    }
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

/// The name of a pattern at evaluation. A rule can't contain such a name.
pub(crate) fn name(pattern: &str) -> String {
    format!("@pattern {pattern}")
}

fn matches<'b, 'v>(args: &Args<'b, 'v>, pattern: &Regex) -> Answer<'b, 'v> {
    give_bool(pattern.is_match(text(args, 0)?))
}

fn find<'b, 'v>(args: &Args<'b, 'v>, pattern: &Regex) -> Answer<'b, 'v> {
    give_text(pattern.find(text(args, 0)?).map_or("", |found| found.as_str()))
}

fn find_all<'b, 'v>(args: &Args<'b, 'v>, pattern: &Regex) -> Answer<'b, 'v> {
    let most = usize::try_from(if args.len() > 2 { int(args, 2)? } else { -1 }).unwrap_or(usize::MAX);
    give_texts(pattern.find_iter(text(args, 0)?).take(most).map(|found| found.as_str()))
}

/// Compiles the pattern of a call.
fn now(args: &Args<'_, '_>) -> Result<Regex, ExecutionError> {
    compile(text(args, 1)?).map_err(|why| fail(format!("error parsing regexp: {why}")))
}

/// The precompiled pattern of a call. A copy shares the pattern, and has its own search cache, which is dropped with it. A search therefore
/// leaves nothing behind for the next.
fn before(args: &Args<'_, '_>) -> Result<Regex, ExecutionError> {
    special::<Pattern>(args, 1).map(|pattern| pattern.0.clone())
}

/// Compiles an expression in RE2's syntax.
pub(crate) fn compile(pattern: &str) -> Result<Regex, String> {
    build(pattern, LARGEST)
}

fn build(pattern: &str, largest: usize) -> Result<Regex, String> {
    let ours = Translation { rest: pattern, ours: String::with_capacity(pattern.len()) }.run()?;
    RegexBuilder::new(&ours).size_limit(largest).nest_limit(250).build().map_err(|error| {
        let message = error.to_string();
        let last = message.lines().last().unwrap_or_default();
        last.strip_prefix("error: ").unwrap_or(last).to_owned()
    })
}

/// The state of a translation between the two syntaxes.
struct Translation<'a> {
    rest: &'a str,
    ours: String,
}

impl Translation<'_> {
    fn run(mut self) -> Result<String, String> {
        while let Some(letter) = self.next() {
            match letter {
                '\\' => self.escape(false)?,
                '[' => self.class()?,
                '(' => self.group()?,
                '{' => self.repetition()?,
                '*' | '+' | '?' => {
                    self.ours.push(letter);
                    self.no_second_repetition()?;
                }
                _ => self.ours.push(letter),
            }
        }
        Ok(self.ours)
    }

    fn next(&mut self) -> Option<char> {
        let letter = self.rest.chars().next()?;
        self.rest = self.rest.get(letter.len_utf8()..).unwrap_or_default();
        Some(letter)
    }

    /// Translates an escape. Character classes contain only ASCII.
    fn escape(&mut self, in_class: bool) -> Result<(), String> {
        let Some(letter) = self.next() else {
            return Err("trailing backslash at end of expression".to_owned());
        };
        let class = match letter {
            'd' => "0-9",
            'w' => "0-9A-Za-z_",
            's' => "\\t\\n\\x0C\\r ",
            'D' => "^0-9",
            'W' => "^0-9A-Za-z_",
            'S' => "^\\t\\n\\x0C\\r ",
            'b' if !in_class => {
                self.ours.push_str("(?-u:\\b)");
                return Ok(());
            }
            'B' if !in_class => {
                self.ours.push_str("(?-u:\\B)");
                return Ok(());
            }
            'Q' if !in_class => {
                let (literal, rest) = self.rest.split_once("\\E").unwrap_or((self.rest, ""));
                self.ours.push_str(&regex::escape(literal));
                self.rest = rest;
                return Ok(());
            }
            'A' | 'z' | 'p' | 'P' | 'x' | 'a' | 'f' | 't' | 'n' | 'r' | 'v' => {
                self.ours.push('\\');
                self.ours.push(letter);
                if matches!(letter, 'p' | 'P' | 'x') && self.rest.starts_with('{') {
                    let end = self.rest.find('}').map_or(self.rest.len(), |end| end + 1);
                    let (name, rest) = self.rest.split_at(end);
                    self.ours.push_str(name);
                    self.rest = rest;
                }
                return Ok(());
            }
            '0'..='7' => return self.octal(letter),
            _ if letter.is_ascii_punctuation() => {
                self.ours.push_str(&regex::escape(letter.encode_utf8(&mut [0; 4])));
                return Ok(());
            }
            _ => return Err(format!("invalid escape sequence: `\\{letter}`")),
        };
        self.ours.push('[');
        self.ours.push_str(class);
        self.ours.push(']');
        Ok(())
    }

    fn octal(&mut self, first: char) -> Result<(), String> {
        let second = self.rest.starts_with(|letter: char| ('0'..='7').contains(&letter));
        if first != '0' && !second {
            return Err(format!("invalid escape sequence: `\\{first}`"));
        }
        let mut value = first.to_digit(8).unwrap_or(0);
        for _ in 0..2 {
            let Some(digit) = self.rest.chars().next().and_then(|letter| letter.to_digit(8)) else {
                break;
            };
            value = value * 8 + digit;
            self.next();
        }
        self.ours.extend(["\\x{", &format!("{value:x}"), "}"]);
        Ok(())
    }

    /// Translates a class in brackets. Characters that the engine treats as operations on classes are literals in RE2.
    fn class(&mut self) -> Result<(), String> {
        self.ours.push('[');
        if self.rest.starts_with('^') {
            self.next();
            self.ours.push('^');
        }
        let mut first = true;
        while let Some(letter) = self.next() {
            match letter {
                ']' if !first => {
                    self.ours.push(']');
                    return Ok(());
                }
                '\\' => self.escape(true)?,
                '[' if self.rest.starts_with(':') && self.rest.contains(":]") => {
                    let (name, rest) = self.rest.split_once(":]").unwrap_or((self.rest, ""));
                    self.ours.push('[');
                    self.ours.push_str(name);
                    self.ours.push_str(":]");
                    self.rest = rest;
                }
                '[' | ']' | '&' | '~' => {
                    self.ours.push('\\');
                    self.ours.push(letter);
                }
                '-' if first || self.rest.starts_with([']', '-']) => self.ours.push_str("\\-"),
                _ => self.ours.push(letter),
            }
            first = false;
        }
        Err("missing closing ]".to_owned())
    }

    /// Translates a group with RE2's flags.
    fn group(&mut self) -> Result<(), String> {
        self.ours.push('(');
        let Some(flags) = self.rest.strip_prefix('?') else {
            return Ok(());
        };
        if flags.starts_with("P<") || flags.starts_with('<') {
            return if flags.starts_with("<=") || flags.starts_with("<!") {
                Err("invalid or unsupported Perl syntax".to_owned())
            } else {
                Ok(())
            };
        }
        let end = flags.find([':', ')']).unwrap_or(flags.len());
        if flags.get(..end).unwrap_or(flags).bytes().all(|flag| b"imsU-".contains(&flag)) {
            Ok(())
        } else {
            Err("invalid or unsupported Perl syntax".to_owned())
        }
    }

    /// Translates a repetition such as `{2,5}`. A brace with other content is a literal brace.
    fn repetition(&mut self) -> Result<(), String> {
        let bounds = self.rest.split_once('}').map(|(bounds, _)| bounds).filter(|bounds| {
            let (least, most) = bounds.split_once(',').unwrap_or((bounds, ""));
            !least.is_empty() && [least, most].iter().all(|part| part.bytes().all(|byte| byte.is_ascii_digit()))
        });
        let Some(bounds) = bounds else {
            self.ours.push_str("\\{");
            return Ok(());
        };
        if bounds.split(',').any(|bound| !bound.is_empty() && bound.parse().unwrap_or(u32::MAX) > MAX_REPEATED) {
            return Err(format!("invalid repeat count: `{{{bounds}}}`"));
        }
        self.ours.push('{');
        self.ours.push_str(bounds);
        self.ours.push('}');
        self.rest = self.rest.get(bounds.len() + 1..).unwrap_or_default();
        self.no_second_repetition()
    }

    fn no_second_repetition(&mut self) -> Result<(), String> {
        if self.rest.starts_with('?') {
            self.next();
            self.ours.push('?');
        }
        if self.rest.starts_with(['*', '+', '?']) { Err("invalid nested repetition operator".to_owned()) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::{Pattern, compile};

    #[test]
    fn only_a_small_pattern_is_kept() {
        for (pattern, right, small) in [
            ("^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$", true, true),
            (r"\pL{20}", true, false),
            (r"\pL{1000}", false, false),
            ("(", false, false),
        ] {
            assert_eq!((compile(pattern).is_ok(), Pattern::small(pattern).is_some()), (right, small), "{pattern}");
        }
    }

    #[test]
    fn re2s_dialect_is_understood() {
        for (pattern, text, expected) in [
            (r"^\d+$", "12", true),
            (r"^\d+$", "١٢", false),
            (r"^[\w-]+$", "a-b_c", true),
            (r"^[a-z&&[^b]]+$", "a&&[^b]", false),
            (r"^[[]$", "[", true),
            (r"^[]]$", "]", true),
            (r"^[[:alpha:]]+$", "abc", true),
            (r"^\Qa.b\E$", "a.b", true),
            (r"^a{,2}$", "a{,2}", true),
            (r"(?i)^straSSe$", "STRASSE", true),
            (r"\bfoo\b", "a foo b", true),
            (r"^\pL+$", "äö", true),
        ] {
            assert_eq!(compile(pattern).unwrap().is_match(text), expected, "{pattern} on {text}");
        }
    }

    #[test]
    fn what_re2_refuses_is_refused() {
        for pattern in ["a**", "a{1001}", "(", "[a", r"\", r"(?=a)", r"(?<!a)b", r"\8", "(?x)a", "*"] {
            assert!(compile(pattern).is_err(), "{pattern}");
        }
    }
}
