//! The filters that a question can use: those of the language, and of its library those that need nothing but their input.
//!
//! Guarantees: none of them reads the time, the environment or a file, writes anywhere, or ends the program.

use jaq_core::{
    DataT, Error, RunPtr, ValR,
    load::parse::Def,
    native::{Filter, Fun, bome, run, v},
};
use jaq_json::Val;
use jaq_std::ValT as _;
use regex_lite::{Regex, RegexBuilder};

/// Filters that are written in the language itself.
pub fn definitions() -> impl Iterator<Item = Def<&'static str>> {
    jaq_core::defs().chain(jaq_std::defs().filter(|def| !WITHOUT.contains(&def.name))).chain(jaq_json::defs())
}

/// Filters that are not.
pub fn natives<D: for<'a> DataT<V<'a> = Val>>() -> impl Iterator<Item = Fun<D>> {
    let library = jaq_std::base_funs().filter(|(name, ..)| *name != "halt");
    jaq_core::funs().chain(library).chain(jaq_json::funs()).chain(own().into_iter().map(run))
}

/// Definitions of the library whose foundations are missing here: they end the program, write elsewhere than into the answer, tell dates, or
/// are mathematics and encodings that would make the skill twice as large.
const WITHOUT: &[&str] = &[
    "halt",
    "halt_error",
    "stderr",
    "debug",
    "todate",
    "fromdate",
    "logb",
    "significand",
    "drem",
    "nexttoward",
    "scalb",
    "gamma",
    "@html",
    "@htmld",
    "@uri",
    "@urid",
    "@base64",
    "@base64d",
];

fn own<D: for<'a> DataT<V<'a> = Val>>() -> Vec<Filter<RunPtr<D>>> {
    vec![
        // What `test`, `match`, `capture`, `scan`, `sub`, `gsub`, `split` and `splits` are made of.
        ("matches", v(2), |mut cv| {
            let (flags, pattern) = (cv.0.pop_var(), cv.0.pop_var());
            bome(parts(&cv.1, &pattern, &flags, Kept { gaps: false, matches: true }))
        }),
        ("split_matches", v(2), |mut cv| {
            let (flags, pattern) = (cv.0.pop_var(), cv.0.pop_var());
            bome(parts(&cv.1, &pattern, &flags, Kept { gaps: true, matches: true }))
        }),
        ("split_", v(2), |mut cv| {
            let (flags, pattern) = (cv.0.pop_var(), cv.0.pop_var());
            bome(parts(&cv.1, &pattern, &flags, Kept { gaps: true, matches: false }))
        }),
        ("sqrt", v(0), |cv| bome(float(&cv.1).map(|x| x.sqrt().into()))),
        ("fabs", v(0), |cv| bome(float(&cv.1).map(|x| x.abs().into()))),
        ("trunc", v(0), |cv| bome(float(&cv.1).map(|x| x.trunc().into()))),
        ("exp", v(0), |cv| bome(float(&cv.1).map(|x| x.exp().into()))),
        ("exp2", v(0), |cv| bome(float(&cv.1).map(|x| x.exp2().into()))),
        ("exp10", v(0), |cv| bome(float(&cv.1).map(|x| 10_f64.powf(x).into()))),
        ("log", v(0), |cv| bome(float(&cv.1).map(|x| x.ln().into()))),
        ("log2", v(0), |cv| bome(float(&cv.1).map(|x| x.log2().into()))),
        ("log10", v(0), |cv| bome(float(&cv.1).map(|x| x.log10().into()))),
        ("pow", v(2), |mut cv| {
            let (exponent, base) = (cv.0.pop_var(), cv.0.pop_var());
            bome(float(&base).and_then(|base| Ok(base.powf(float(&exponent)?).into())))
        }),
    ]
}

fn float(value: &Val) -> Result<f64, Error<Val>> {
    value.as_f64().ok_or_else(|| Error::typ(value.clone(), "number"))
}

fn text(value: &Val) -> Result<&str, Error<Val>> {
    let no_text = || Error::typ(value.clone(), "string");
    value.as_utf8_bytes().and_then(|bytes| str::from_utf8(bytes).ok()).ok_or_else(no_text)
}

/// What of a text is kept when a pattern was looked for.
#[derive(Clone, Copy)]
struct Kept {
    /// What lies between matches, as text.
    gaps: bool,
    /// The matches, each as a list of its groups.
    matches: bool,
}

fn parts(subject: &Val, pattern: &Val, flags: &Val, kept: Kept) -> ValR<Val> {
    let flags = Flags::parse(text(flags)?)?;
    let pattern = flags.pattern(text(pattern)?)?;
    let subject = text(subject)?;
    let mut parts = Vec::new();
    let mut end = 0;
    // Positions are told in characters. They are counted on from one match to the next, so that each is counted once.
    let mut counted = (0, 0);
    for groups in pattern.captures_iter(subject) {
        let Some(whole) = groups.get(0) else { continue };
        if flags.no_empty && whole.is_empty() {
            continue;
        }
        if kept.gaps {
            parts.push(Val::from(subject.get(end..whole.start()).unwrap_or_default().to_owned()));
            end = whole.end();
        }
        if kept.matches {
            counted.1 += subject.get(counted.0..whole.start()).unwrap_or_default().chars().count();
            counted.0 = whole.start();
            let names = pattern.capture_names();
            let told = groups.iter().zip(names).filter_map(|(group, name)| Some((group?, name)));
            parts.push(told.map(|(group, name)| found(subject, group, name, counted)).collect());
        }
        if !flags.global {
            break;
        }
    }
    if kept.gaps {
        parts.push(Val::from(subject.get(end..).unwrap_or_default().to_owned()));
    }
    Ok(parts.into_iter().collect())
}

/// A group of a match. `from` is a place at or before it, in bytes and in characters.
fn found(subject: &str, group: regex_lite::Match<'_>, name: Option<&str>, from: (usize, usize)) -> Val {
    let offset = from.1 + subject.get(from.0..group.start()).unwrap_or_default().chars().count();
    let key = |key: &str| Val::from(key.to_owned());
    let mut entries = vec![
        (key("offset"), Val::from(offset)),
        (key("length"), Val::from(group.as_str().chars().count())),
        (key("string"), Val::from(group.as_str().to_owned())),
    ];
    entries.extend(name.map(|name| (key("name"), Val::from(name.to_owned()))));
    Val::obj(entries.into_iter().collect())
}

#[derive(Default)]
struct Flags {
    global: bool,
    no_empty: bool,
    any_case: bool,
    by_line: bool,
    dot_is_all: bool,
    lazy: bool,
    spaced: bool,
}

impl Flags {
    fn parse(letters: &str) -> Result<Self, Error<Val>> {
        let mut flags = Self::default();
        for letter in letters.chars() {
            match letter {
                'g' => flags.global = true,
                'n' => flags.no_empty = true,
                'i' => flags.any_case = true,
                'm' => flags.by_line = true,
                's' => flags.dot_is_all = true,
                'p' => (flags.by_line, flags.dot_is_all) = (true, true),
                'l' => flags.lazy = true,
                'x' => flags.spaced = true,
                _ => return Err(Error::str(format_args!("`{letter}` is no flag of a pattern"))),
            }
        }
        Ok(flags)
    }

    fn pattern(&self, pattern: &str) -> Result<Regex, Error<Val>> {
        RegexBuilder::new(pattern)
            .case_insensitive(self.any_case)
            .multi_line(self.by_line)
            .dot_matches_new_line(self.dot_is_all)
            .swap_greed(self.lazy)
            .ignore_whitespace(self.spaced)
            .build()
            .map_err(|err| Error::str(format_args!("`{pattern}` is no pattern: {err}")))
    }
}
