//! Hides credentials in texts that are shown.
//!
//! An error may quote a misplaced credential. Where it is not certain which part of a text is
//! a password, more is hidden.

use super::tokens::TOKEN_BYTES_MIN;

/// Names of parameters whose values are hidden.
const SECRET_NAMES: [&str; 6] = ["password", "passwd", "pwd", "passfile", "secret", "token"];

/// The text without the user info of URLs and without the values of secret parameters.
pub fn redact(text: &str) -> String {
    let lines: Vec<String> = text.split('\n').map(|line| without_parameters(&without_user_info(line))).collect();
    lines.join("\n")
}

/// The text as it may be shown, unless it may be a token in the wrong place: it is as long as one and has no `/`, `.` or
/// `:`.
pub fn shown(text: &str) -> &str {
    if text.len() >= TOKEN_BYTES_MIN && !text.contains(['/', '.', ':']) { "(not shown)" } else { text }
}

/// Everything from the first `://` to the last `@` of a line: a password may hold any character. `USER` is
/// the placeholder of our own messages.
fn without_user_info(line: &str) -> String {
    match (line.find("://"), line.rfind('@')) {
        (Some(start), Some(end)) if start + 3 <= end && &line[start + 3..end] != "USER" => {
            format!("{}…{}", &line[..start + 3], &line[end..])
        }
        (Some(_) | None, _) => line.to_owned(),
    }
}

fn without_parameters(line: &str) -> String {
    let (mut shown, mut rest) = (String::new(), line);
    while let Some((before, after)) = rest.split_once('=') {
        shown.push_str(before);
        shown.push('=');
        rest = after;
        let name = before.trim_end().rsplit(|c: char| !c.is_ascii_alphanumeric()).next().unwrap_or_default();
        if SECRET_NAMES.iter().any(|secret| name.to_ascii_lowercase().ends_with(secret)) {
            let value = rest.trim_start();
            let end = value.find(|c: char| c.is_whitespace() || "&;`\"".contains(c)).unwrap_or(value.len());
            shown.push('…');
            rest = &value[end..];
        }
    }
    shown + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_hidden_wherever_they_are() {
        for (text, expected) in [
            ("`postgres://u:pw@h/db` is no time", "`postgres://…@h/db` is no time"),
            ("postgres://u:p@ w@h/db", "postgres://…@h/db"),
            ("a\nredis://:pw@h\nb@c", "a\nredis://…@h\nb@c"),
            ("host=h password=pw dbname=d", "host=h password=… dbname=d"),
            ("h?sslPassword=pw&b=c", "h?sslPassword=…&b=c"),
            ("PASSWORD = pw", "PASSWORD =…"),
            ("https://example.com/?a=b is fine", "https://example.com/?a=b is fine"),
            ("write postgres://USER@HOST/DATABASE", "write postgres://USER@HOST/DATABASE"),
            ("mail to a@b about x://", "mail to a@b about x://"),
        ] {
            assert_eq!(redact(text), expected);
        }
    }
}
