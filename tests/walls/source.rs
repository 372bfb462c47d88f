//! Source files as the walls read them: without comments, literals and test code, and with every
//! path that the code names resolved to where it leads.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// A file of this repository.
pub(crate) struct Source {
    /// Its path from the repository's root.
    pub(crate) file: String,
    /// All of it.
    pub(crate) text: String,
    /// The text with comments and literals blanked out, line by line as it was.
    pub(crate) code: String,
    /// The code without what is compiled for tests only.
    pub(crate) production: String,
}

/// A path that the code names.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Name {
    /// Counted from 1.
    pub(crate) line: usize,
    /// From `crate`, `std`, or the name of another crate.
    pub(crate) path: Vec<String>,
}

const TEST_MARK: &str = "#[cfg(test)]";

/// All `.rs` files below a folder of the repository, sorted; what was built and hidden folders
/// are left out.
pub(crate) fn below(folder: &str) -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    collect(&root.join(folder), &mut files);
    assert!(!files.is_empty(), "no source below {folder}");
    files.sort();
    let read = |file: &String| {
        let text = fs::read_to_string(file).expect("a listed file can be read");
        let file = Path::new(file).strip_prefix(root).expect("it is below the root");
        Source::new(&file.to_string_lossy().replace('\\', "/"), &text)
    };
    let mut sources: Vec<Source> = files.iter().map(read).collect();
    let test_modules: Vec<_> = sources.iter().flat_map(Source::test_modules).collect();
    for source in &mut sources {
        let module = source.module();
        if test_modules.iter().any(|test_module| module.starts_with(test_module)) {
            source.production.clear();
        }
    }
    sources
}

fn collect(folder: &Path, files: &mut Vec<String>) {
    for entry in fs::read_dir(folder).expect("the folder can be listed") {
        let path = entry.expect("the folder can be listed").path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_dir() && name != "target" && !name.starts_with('.') {
            collect(&path, files);
        } else if name.ends_with(".rs") {
            files.push(path.to_string_lossy().into_owned());
        }
    }
}

impl Source {
    pub(crate) fn new(file: &str, text: &str) -> Self {
        let code = without_comments_and_literals(text);
        let is_test = file.split('/').any(|part| part == "tests");
        let production = if is_test { String::new() } else { without_tests(&code) };
        Self { file: file.to_owned(), text: text.to_owned(), code, production }
    }

    /// The path of the module that this file is: `src/keeper/acl/ip.rs` is
    /// `crate::keeper::acl::ip`.
    pub(crate) fn module(&self) -> Vec<String> {
        let inside = self.file.split_once("src/").map_or(self.file.as_str(), |(_, inside)| inside);
        let inside = inside.trim_end_matches(".rs");
        let parts = inside.split('/').filter(|part| !matches!(*part, "lib" | "main" | "mod"));
        ["crate"].into_iter().chain(parts).map(str::to_owned).collect()
    }

    /// The modules in other files that this file declares for tests only.
    pub(crate) fn test_modules(&self) -> Vec<Vec<String>> {
        let module = self.module();
        let marked = self.code.split(TEST_MARK).skip(1);
        let heads = marked.filter_map(|item| item.split(['{', '=']).next()?.split_once(';'));
        let names = heads.filter_map(|(head, _)| head.rsplit_once("mod "));
        names.map(|(_, name)| [module.clone(), vec![name.trim().to_owned()]].concat()).collect()
    }

    /// Every path that the production code names, whether imported or written out, if it leads
    /// to our own crate, to std, or to one of `crates`.
    pub(crate) fn names(&self, crates: &BTreeSet<String>) -> BTreeSet<Name> {
        let tokens = tokens(&self.production);
        let module = self.module();
        let mut aliases = BTreeMap::new();
        let (mut written, mut names) = (Vec::new(), BTreeSet::new());
        let mut at = 0;
        while let Some((token, line)) = tokens.get(at) {
            at += 1;
            match *token {
                "use" => {
                    let mut imports = Vec::new();
                    read_use(&tokens, &mut at, Vec::new(), &mut imports);
                    for (path, alias) in imports {
                        if let Some(path) = resolve(&path, &module, &BTreeMap::new(), crates) {
                            aliases.insert(alias, path.clone());
                            names.insert(Name { line: *line, path });
                        }
                    }
                }
                "mod" => {
                    if let (Some((child, _)), Some((";", _))) = (tokens.get(at), tokens.get(at + 1))
                    {
                        let path = [module.clone(), vec![(*child).to_owned()]].concat();
                        aliases.insert((*child).to_owned(), path);
                    }
                }
                token if is_word(token) && is_at(&tokens, at, "::") => {
                    let mut path = vec![token.to_owned()];
                    while is_at(&tokens, at, "::") {
                        match tokens.get(at + 1) {
                            Some((word, _)) if is_word(word) => path.push((*word).to_owned()),
                            _ => break,
                        }
                        at += 2;
                    }
                    written.push((*line, path));
                }
                _ => {}
            }
        }
        for (line, path) in written {
            if let Some(path) = resolve(&path, &module, &aliases, crates) {
                names.insert(Name { line, path });
            }
        }
        names
    }

    /// Functions longer than `lines_max`: the line where each begins, and its length.
    pub(crate) fn long_functions(&self, lines_max: usize) -> Vec<(usize, usize)> {
        let tokens = tokens(&self.code);
        let mut found = Vec::new();
        for (at, (token, first)) in tokens.iter().enumerate() {
            if *token != "fn" {
                continue;
            }
            let (mut depth, mut last) = (0usize, *first);
            for (token, line) in &tokens[at..] {
                last = *line;
                match *token {
                    "{" => depth += 1,
                    "}" if depth <= 1 => break,
                    "}" => depth -= 1,
                    ";" if depth == 0 => break,
                    _ => {}
                }
            }
            if last - first >= lines_max {
                found.push((*first, last - first + 1));
            }
        }
        found
    }

    /// The lines of the production code with one of these words in it.
    pub(crate) fn lines_with(&self, words: &[&str]) -> Vec<(usize, String)> {
        let tokens = tokens(&self.production);
        let found = tokens.iter().filter(|(token, _)| words.contains(token));
        found.map(|(token, line)| (*line, (*token).to_owned())).collect()
    }
}

/// Reads what follows `use`, up to the end of this branch of the tree. Each import is its path
/// and the name under which the file knows it.
fn read_use(
    tokens: &[(&str, usize)],
    at: &mut usize,
    mut path: Vec<String>,
    imports: &mut Vec<(Vec<String>, String)>,
) {
    while let Some((token, _)) = tokens.get(*at) {
        match *token {
            "::" => *at += 1,
            "{" => {
                *at += 1;
                while !is_at(tokens, *at, "}") && *at < tokens.len() {
                    read_use(tokens, at, path.clone(), imports);
                    *at += usize::from(is_at(tokens, *at, ","));
                }
                *at += 1;
                return;
            }
            "as" => {
                let alias = tokens.get(*at + 1).map(|(alias, _)| (*alias).to_owned());
                *at += 2;
                imports.push((path, alias.unwrap_or_default()));
                return;
            }
            "self" if !path.is_empty() => *at += 1,
            word if is_word(word) => {
                path.push(word.to_owned());
                *at += 1;
            }
            end => {
                *at += usize::from(end == "*");
                break;
            }
        }
    }
    let alias = path.last().cloned().unwrap_or_default();
    imports.push((path, alias));
}

fn resolve(
    path: &[String],
    module: &[String],
    aliases: &BTreeMap<String, Vec<String>>,
    crates: &BTreeSet<String>,
) -> Option<Vec<String>> {
    let (first, rest) = path.split_first()?;
    let supers = path.iter().take_while(|part| *part == "super").count();
    match first.as_str() {
        "crate" | "zkshim" => Some([&["crate".to_owned()], rest].concat()),
        "self" => Some([module, rest].concat()),
        "super" => {
            let above = &module[..module.len().saturating_sub(supers)];
            Some([above, &path[supers..]].concat())
        }
        "std" | "core" | "alloc" => Some([&["std".to_owned()], rest].concat()),
        word => match aliases.get(word) {
            Some(target) => Some([target, rest].concat()),
            None => crates.contains(word).then(|| path.to_vec()),
        },
    }
}

fn is_word(token: &str) -> bool {
    token.starts_with(|first: char| first.is_alphabetic() || first == '_')
}

fn is_at(tokens: &[(&str, usize)], at: usize, token: &str) -> bool {
    tokens.get(at).is_some_and(|(found, _)| *found == token)
}

/// Words, `::`, and every other character that is not white space, with their lines.
fn tokens(code: &str) -> Vec<(&str, usize)> {
    let is_part = |character: char| character.is_alphanumeric() || character == '_';
    let (mut tokens, mut line, mut rest) = (Vec::new(), 1, code);
    while let Some(first) = rest.chars().next() {
        let length = match first {
            _ if is_part(first) => rest.find(|c| !is_part(c)).unwrap_or(rest.len()),
            ':' if rest.starts_with("::") => 2,
            _ => first.len_utf8(),
        };
        let (token, after) = rest.split_at(length);
        if !first.is_whitespace() {
            tokens.push((token, line));
        }
        line += usize::from(first == '\n');
        rest = after;
    }
    tokens
}

/// Blanks the items behind `#[cfg(test)]`, up to their closing brace or semicolon.
fn without_tests(code: &str) -> String {
    let (mut kept, mut rest) = (String::new(), code);
    while let Some((before, item)) = rest.split_once(TEST_MARK) {
        let mut depth = 0usize;
        let end = item.find(|character: char| {
            depth += usize::from(character == '{');
            depth = depth.saturating_sub(usize::from(character == '}'));
            depth == 0 && matches!(character, '}' | ';')
        });
        let (blanked, after) = item.split_at(end.map_or(item.len(), |end| end + 1));
        kept.push_str(before);
        kept.extend(blanked.chars().filter(|character| *character == '\n'));
        rest = after;
    }
    kept + rest
}

/// Blanks comments, strings and characters; what is left has the same lines.
fn without_comments_and_literals(text: &str) -> String {
    let (mut code, mut rest) = (String::new(), text);
    let mut after_word = false;
    while let Some(first) = rest.chars().next() {
        let length = if after_word { None } else { raw_string(rest) };
        let length = length.or_else(|| comment(rest)).or_else(|| literal(rest));
        let (blanked, after) = rest.split_at(length.unwrap_or(first.len_utf8()));
        if length.is_some() {
            code.push(' ');
            code.extend(blanked.chars().filter(|character| *character == '\n'));
        } else {
            code.push(first);
        }
        after_word = first.is_alphanumeric() || first == '_';
        rest = after;
    }
    code
}

fn comment(rest: &str) -> Option<usize> {
    if rest.starts_with("//") {
        return Some(rest.find('\n').unwrap_or(rest.len()));
    }
    let mut inside = rest.strip_prefix("/*")?;
    let mut depth = 1;
    while depth > 0 {
        let next = inside.find("*/")?;
        let opened = inside.find("/*").filter(|opened| *opened < next);
        depth = if opened.is_some() { depth + 1 } else { depth - 1 };
        inside = &inside[opened.unwrap_or(next) + 2..];
    }
    Some(rest.len() - inside.len())
}

fn literal(rest: &str) -> Option<usize> {
    let quote = rest.chars().next().filter(|first| matches!(first, '"' | '\''))?;
    let mut characters = rest.char_indices().skip(1);
    let is_lifetime = quote == '\''
        && !rest[1..].starts_with('\\')
        && rest.chars().nth(2).is_none_or(|third| third != '\'');
    if is_lifetime {
        return None;
    }
    while let Some((at, character)) = characters.next() {
        match character {
            '\\' => drop(characters.next()),
            _ if character == quote => return Some(at + 1),
            _ => {}
        }
    }
    Some(rest.len())
}

/// `r"…"` and `r#"…"#`, with or without a `b` or `c` before the `r`.
fn raw_string(rest: &str) -> Option<usize> {
    let raw = rest.strip_prefix(['b', 'c']).unwrap_or(rest).strip_prefix('r')?;
    let body = raw.trim_start_matches('#');
    let end = format!("\"{}", "#".repeat(raw.len() - body.len()));
    let after = body.strip_prefix('"')?.split_once(&end)?.1;
    Some(rest.len() - after.len())
}
