//! Parses a text to a tree. Both are limited: a tree that is too deep would crash the sandbox, not only the rule.

use cel::common::ast::{Expr, IdedExpr, SourceInfo};
use cel::parser::pratt_parser::{Lexer, TokenKind};
use cel::parser::{ParseErrors, PrattParser};
use std::sync::Arc;

/// The maximum numbers of open brackets, of chained conditions, and of operators and selections.
const BRACKETS: u32 = 64;
const CONDITIONS: u32 = 200;
const OPERATORS: u32 = 2000;

/// The error for a tree that exceeds the evaluator's stack.
pub(crate) const TOO_DEEP: &str = "the expression is nested too deeply";

/// A position in a text: a line and a column, starting at 1, in characters. 0 is unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Position {
    pub(crate) line: u32,
    pub(crate) column: u32,
}

/// Parses an expression.
pub(crate) fn parse(source: &str) -> Result<IdedExpr, Vec<(Position, String)>> {
    if source.trim().is_empty() {
        return Err(vec![(Position { line: 1, column: 1 }, "the expression is empty".to_owned())]);
    }
    bound(source)?;
    parser().parse(source).map_err(|errors| problems(source, errors))
}

fn parser() -> PrattParser {
    PrattParser::new()
        .enable_optional_syntax(true)
        .max_recursion_depth(u16::try_from(BRACKETS).unwrap_or(u16::MAX))
        .max_expression_node_count(100_000)
        .error_reporting_limit(10)
}

fn problems(source: &str, errors: ParseErrors) -> Vec<(Position, String)> {
    errors
        .errors
        .into_iter()
        .map(|error| {
            let unsigned = |number: isize| u32::try_from(number).unwrap_or(0);
            let (line, column) = error.pos;
            (in_characters(source, unsigned(line), unsigned(column)), crate::error::bounded(error.msg))
        })
        .collect()
}

/// The parser counts columns in bytes.
fn in_characters(source: &str, line: u32, column: u32) -> Position {
    let text = source.lines().nth(usize::try_from(line.saturating_sub(1)).unwrap_or(0)).unwrap_or_default();
    let before = usize::try_from(column.saturating_sub(1)).unwrap_or(0);
    let characters = text.char_indices().take_while(|(at, _)| *at < before).count();
    Position { line, column: if column == 0 { 0 } else { u32::try_from(characters).unwrap_or(0) + 1 } }
}

/// Rejects, by its tokens, an expression whose tree would be too deep to be traversed or dropped.
fn bound(source: &str) -> Result<(), Vec<(Position, String)>> {
    let mut lexer = Lexer::new(source);
    let (mut open, mut conditions, mut operators): (u32, u32, u32) = (0, 0, 0);
    loop {
        let token = lexer.lex();
        match token.kind {
            TokenKind::TokEnd | TokenKind::TokError => return Ok(()),
            TokenKind::TokLeftParen | TokenKind::TokLeftBracket | TokenKind::TokLeftBrace => {
                open += 1;
                operators += u32::from(token.kind != TokenKind::TokLeftBrace);
            }
            TokenKind::TokRightParen | TokenKind::TokRightBracket | TokenKind::TokRightBrace => open = open.saturating_sub(1),
            TokenKind::TokQuestion => conditions += 1,
            TokenKind::TokDot
            | TokenKind::TokMinus
            | TokenKind::TokPlus
            | TokenKind::TokAsterisk
            | TokenKind::TokSlash
            | TokenKind::TokPercent
            | TokenKind::TokExclamation
            | TokenKind::TokEqualEqual
            | TokenKind::TokExclamationEqual
            | TokenKind::TokLess
            | TokenKind::TokLessEqual
            | TokenKind::TokGreater
            | TokenKind::TokGreaterEqual
            | TokenKind::TokIn => operators += 1,
            _ => {}
        }
        if open > BRACKETS || conditions > CONDITIONS || operators > OPERATORS {
            return Err(vec![(place_of(source, token.start), TOO_DEEP.to_owned())]);
        }
    }
}

/// The positions of a parsed expression's nodes.
#[derive(Debug)]
pub(crate) struct Places<'a> {
    source: &'a str,
    found: Option<Arc<SourceInfo>>,
}

impl<'a> Places<'a> {
    /// Finds the positions.
    ///
    /// The parser returns them only with an error. The expression is therefore parsed again with an error appended. Up to the error, every
    /// node gets the same number as before.
    pub(crate) fn locate(source: &'a str) -> Self {
        let errors = parser().parse(&format!("{source}\n)")).err().map(|errors| errors.errors).unwrap_or_default();
        let found = errors.into_iter().find_map(|error| error.source_info);
        Places { source, found }
    }

    /// Whether a node's position follows a word. The position of a call is its bracket.
    pub(crate) fn is_after(&self, id: u64, word: &str) -> bool {
        let offset = self.found.as_ref().and_then(|found| found.offset_for(id)).and_then(|(start, _)| usize::try_from(start).ok());
        offset.and_then(|offset| self.source.get(..offset)).is_some_and(|before| before.trim_end().ends_with(word))
    }

    /// The position of a node.
    pub(crate) fn place(&self, id: u64) -> Position {
        let offset = self.found.as_ref().and_then(|found| found.offset_for(id));
        offset.map_or_else(Position::default, |(start, _)| place_of(self.source, usize::try_from(start).unwrap_or(usize::MAX)))
    }
}

fn place_of(source: &str, offset: usize) -> Position {
    let before = source.get(..offset).unwrap_or(source);
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    Position { line: u32::try_from(line).unwrap_or(0), column: u32::try_from(column).unwrap_or(0) }
}

/// Takes a tree apart without recursion, which dropping it would use.
pub(crate) fn dismantle(tree: IdedExpr) {
    let mut rest = vec![tree];
    while let Some(node) = rest.pop() {
        match node.expr {
            Expr::Call(call) => {
                rest.extend(call.target.map(|target| *target));
                rest.extend(call.args);
            }
            Expr::Select(select) => rest.push(*select.operand),
            Expr::List(list) => rest.extend(list.elements),
            Expr::Comprehension(comprehension) => {
                let comprehension = *comprehension;
                rest.extend([comprehension.iter_range, comprehension.loop_step]);
            }
            _ => {}
        }
    }
}
