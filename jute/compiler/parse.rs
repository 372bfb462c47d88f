//! Jute's grammar: one function for each production, named after it.

use nom::branch::alt;
use nom::bytes::complete::{tag, take_until, take_while};
use nom::character::complete::{char, multispace1, not_line_ending, satisfy};
use nom::combinator::{all_consuming, cut, map, not, opt, peek, recognize, value};
use nom::error::Error;
use nom::multi::{many0, many0_count, separated_list1};
use nom::sequence::{delimited, pair, preceded, terminated};
use nom::{IResult, Parser};

use crate::compiler::ast::{Field, Module, Record, Schema, Type};

/// Parses a whole schema.
///
/// # Errors
/// The line where the grammar was broken, and the words that stand there.
pub(crate) fn parse(text: &str) -> Result<Schema, String> {
    let error = match all_consuming(schema).parse(text) {
        Ok((_, schema)) => return Ok(schema),
        Err(nom::Err::Error(error) | nom::Err::Failure(error)) => error,
        Err(nom::Err::Incomplete(_)) => return Err(String::from("ends too early")),
    };
    let read = text.len() - error.input.len();
    let line = text.bytes().take(read).filter(|byte| *byte == b'\n').count() + 1;
    let found = error.input.lines().next().unwrap_or("the end");
    Err(format!("line {line}: not understood: {found}"))
}

fn schema(input: &str) -> IResult<&str, Schema> {
    let modules = many0(module);
    map(terminated(modules, space), |modules| Schema { modules }).parse(input)
}

fn module(input: &str) -> IResult<&str, Module> {
    let (input, name) = preceded(keyword("module"), cut(dotted_name)).parse(input)?;
    let records = delimited(symbol('{'), many0(record), symbol('}'));
    map(cut(records), |records| Module { name: name.clone(), records }).parse(input)
}

fn record(input: &str) -> IResult<&str, Record> {
    let (input, doc) = doc(input)?;
    let (input, name) = preceded(keyword("class"), cut(name)).parse(input)?;
    let fields = delimited(symbol('{'), many0(field), symbol('}'));
    map(cut(fields), |fields| Record { doc: doc.clone(), name: name.clone(), fields }).parse(input)
}

fn field(input: &str) -> IResult<&str, Field> {
    let (input, doc) = doc(input)?;
    let (input, kind) = kind(input)?;
    let (input, name) = cut(terminated(name, symbol(';'))).parse(input)?;
    Ok((input, Field { doc, kind, name }))
}

fn kind(input: &str) -> IResult<&str, Type> {
    alt((scalar, vector, map(dotted_name, Type::Record))).parse(input)
}

fn scalar(input: &str) -> IResult<&str, Type> {
    alt((
        value(Type::Byte, keyword("byte")),
        value(Type::Boolean, keyword("boolean")),
        value(Type::Int, keyword("int")),
        value(Type::Long, keyword("long")),
        value(Type::Ustring, keyword("ustring")),
        value(Type::Buffer, keyword("buffer")),
    ))
    .parse(input)
}

fn vector(input: &str) -> IResult<&str, Type> {
    let element = delimited(symbol('<'), kind, symbol('>'));
    map(preceded(keyword("vector"), cut(element)), |kind| Type::Vector(Box::new(kind))).parse(input)
}

fn dotted_name(input: &str) -> IResult<&str, String> {
    map(separated_list1(char('.'), name), |parts| parts.join(".")).parse(input)
}

fn name(input: &str) -> IResult<&str, String> {
    map(preceded(space, word), String::from).parse(input)
}

fn word(input: &str) -> IResult<&str, &str> {
    let first = satisfy(|letter| letter.is_ascii_alphabetic() || letter == '_');
    recognize(pair(first, take_while(is_word))).parse(input)
}

fn is_word(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || letter == '_'
}

/// A comment that opens with two stars belongs to what follows it, as in Javadoc.
fn doc(input: &str) -> IResult<&str, Vec<String>> {
    let text = delimited(tag("/**"), take_until("*/"), tag("*/"));
    map(opt(preceded(space, text)), |text| text.map_or_else(Vec::new, doc_lines)).parse(input)
}

fn doc_lines(text: &str) -> Vec<String> {
    let lines = text.lines().map(|line| line.trim().trim_start_matches('*').trim());
    lines.filter(|line| !line.is_empty()).map(String::from).collect()
}

fn space(input: &str) -> IResult<&str, usize> {
    many0_count(alt((value((), multispace1), comment))).parse(input)
}

fn comment(input: &str) -> IResult<&str, ()> {
    let line = value((), pair(tag("//"), not_line_ending));
    let open = terminated(tag("/*"), peek(not(char('*'))));
    let block = value((), (open, take_until("*/"), tag("*/")));
    alt((line, block)).parse(input)
}

fn keyword<'a>(
    word: &'static str,
) -> impl Parser<&'a str, Output = &'a str, Error = Error<&'a str>> {
    delimited(space, tag(word), peek(not(satisfy(is_word))))
}

fn symbol<'a>(symbol: char) -> impl Parser<&'a str, Output = char, Error = Error<&'a str>> {
    preceded(space, char(symbol))
}
