//! Decoding of HTML character references such as `&amp;`.

/// Supported names; others are left unchanged.
const NAMED_ENTITIES: &[(&str, &str)] = &[
    ("amp", "&"),
    ("lt", "<"),
    ("gt", ">"),
    ("quot", "\""),
    ("apos", "'"),
    ("nbsp", " "),
    ("ensp", " "),
    ("emsp", " "),
    ("thinsp", " "),
    ("shy", ""),
    ("zwnj", ""),
    ("zwj", ""),
    ("copy", "©"),
    ("reg", "®"),
    ("trade", "™"),
    ("deg", "°"),
    ("plusmn", "±"),
    ("times", "×"),
    ("divide", "÷"),
    ("minus", "−"),
    ("middot", "·"),
    ("bull", "•"),
    ("hellip", "…"),
    ("ndash", "–"),
    ("mdash", "—"),
    ("lsquo", "‘"),
    ("rsquo", "’"),
    ("ldquo", "“"),
    ("rdquo", "”"),
    ("sbquo", "‚"),
    ("bdquo", "„"),
    ("laquo", "«"),
    ("raquo", "»"),
    ("lsaquo", "‹"),
    ("rsaquo", "›"),
    ("euro", "€"),
    ("pound", "£"),
    ("yen", "¥"),
    ("cent", "¢"),
    ("sect", "§"),
    ("para", "¶"),
    ("larr", "←"),
    ("rarr", "→"),
    ("uarr", "↑"),
    ("darr", "↓"),
    ("harr", "↔"),
    ("check", "✓"),
    ("frac12", "½"),
    ("auml", "ä"),
    ("ouml", "ö"),
    ("uuml", "ü"),
    ("Auml", "Ä"),
    ("Ouml", "Ö"),
    ("Uuml", "Ü"),
    ("szlig", "ß"),
    ("eacute", "é"),
    ("egrave", "è"),
    ("agrave", "à"),
    ("ccedil", "ç"),
    ("ntilde", "ñ"),
    ("lambda", "λ"),
    ("pi", "π"),
    ("infin", "∞"),
    ("ne", "≠"),
    ("le", "≤"),
    ("ge", "≥"),
];
/// Maximum length of a reference.
const MAX_ENTITY_LEN: usize = 10;

/// Replaces character references by their characters.
pub(super) fn decode_entities(text: &str) -> String {
    let mut decoded = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('&') {
        decoded.push_str(before);
        let name = after
            .char_indices()
            .take(MAX_ENTITY_LEN)
            .find(|(_, character)| *character == ';')
            .map(|(end, _)| &after[..end]);
        if let Some((name, character)) = name.and_then(|name| Some((name, entity_text(name)?))) {
            decoded.push_str(&character);
            rest = &after[name.len() + 1..];
        } else {
            decoded.push('&');
            rest = after;
        }
    }
    decoded.push_str(rest);
    decoded
}

fn entity_text(name: &str) -> Option<String> {
    let Some(number) = name.strip_prefix('#') else {
        return NAMED_ENTITIES.iter().find(|(known, _)| *known == name).map(|(_, text)| (*text).to_owned());
    };
    let code = match number.strip_prefix(['x', 'X']) {
        Some(hex) => u32::from_str_radix(hex, 16).ok()?,
        None => number.parse().ok()?,
    };
    char::from_u32(code).filter(|character| *character != '\0').map(String::from)
}

#[cfg(test)]
mod tests {
    use super::decode_entities;

    #[test]
    fn character_references_are_decoded() {
        assert_eq!(decode_entities("a &lt; b &amp;&amp; c &#8364; &#x20AC; &euro;"), "a < b && c € € €");
        assert_eq!(decode_entities("x & y &unknown; &#0; &#xffffff; &"), "x & y &unknown; &#0; &#xffffff; &");
    }
}
