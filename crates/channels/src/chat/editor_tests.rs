use super::{Editor, Key, Written};

fn typed(text: &str) -> Editor {
    let mut editor = Editor::default();
    editor.press(&Key::Paste(text.to_owned()));
    editor
}

fn pressed(editor: &mut Editor, keys: &[Key]) -> String {
    for key in keys {
        assert!(editor.press(key), "{key:?}");
    }
    format!("{}|{}", editor.before_cursor(), &editor.text()[editor.before_cursor().len()..])
}

#[test]
fn c01_characters_are_moved_over_and_taken_away_whole() {
    let mut editor = typed("aé你👩\u{200d}👧");
    assert_eq!(pressed(&mut editor, &[Key::Left]), "aé你|👩\u{200d}👧");
    assert_eq!(pressed(&mut editor, &[Key::Delete, Key::Backspace]), "aé|");
    assert_eq!(pressed(&mut editor, &[Key::Left, Key::Left, Key::Left, Key::Character('x')]), "x|aé");
}

#[test]
fn c01_words_and_lines_are_moved_over_and_taken_away() {
    let mut editor = typed("one two-three  four");
    assert_eq!(pressed(&mut editor, &[Key::WordLeft]), "one two-three  |four");
    assert_eq!(pressed(&mut editor, &[Key::DeleteWord]), "one two-|four");
    assert_eq!(pressed(&mut editor, &[Key::Home, Key::WordRight]), "one| two-four");
    assert_eq!(pressed(&mut editor, &[Key::DeleteToEnd]), "one|");
    assert_eq!(pressed(&mut editor, &[Key::NewLine, Key::Character('x'), Key::DeleteToStart]), "one\n|");
}

#[test]
fn c01_a_paste_of_many_lines_is_one_text() {
    let mut editor = typed("one\r\ntwo\rthree \u{1b}[31mred");
    assert_eq!(editor.text(), "one\ntwo\nthree red");
    assert_eq!(pressed(&mut editor, &[Key::Up]), "one\ntwo|\nthree red");
    assert_eq!(pressed(&mut editor, &[Key::Left, Key::Down]), "one\ntwo\nth|ree red");
    assert_eq!(editor.take(), "one\ntwo\nthree red");
    assert!(editor.is_empty());
}

#[test]
fn c01_a_tab_that_is_pasted_is_sent_as_one() {
    let mut editor = typed("a:\n\tb");
    assert_eq!(editor.written(20).rows, ["a:", "    b"]);
    assert_eq!(editor.written(5).rows, ["a:", "    ", "b"]);
    assert_eq!(pressed(&mut editor, &[Key::Left, Key::Left]), "a:\n|\tb");
    assert_eq!(editor.take(), "a:\n\tb");
}

#[test]
fn c01_earlier_messages_come_back_and_what_was_being_written_is_not_lost() {
    let mut editor = Editor::new(vec!["first".to_owned(), "second".to_owned()]);
    editor.press(&Key::Paste("draft".to_owned()));
    assert_eq!(pressed(&mut editor, &[Key::Up]), "second|");
    assert_eq!(pressed(&mut editor, &[Key::Up, Key::Up]), "first|");
    assert_eq!(pressed(&mut editor, &[Key::Down, Key::Down]), "draft|");
    assert_eq!(editor.take(), "draft");
    assert_eq!(pressed(&mut editor, &[Key::Up]), "draft|");
}

#[test]
fn c01_what_is_written_is_laid_out_with_a_column_for_the_cursor() {
    let written = |text: &str, width| typed(text).written(width);
    let rows =
        |rows: &[&str], row, column| Written { rows: rows.iter().map(|row| (*row).to_owned()).collect(), row, column };
    assert_eq!(written("", 10), rows(&[""], 0, 0));
    assert_eq!(written("abc", 4), rows(&["abc"], 0, 3));
    assert_eq!(written("abcd", 4), rows(&["abc", "d"], 1, 1));
    assert_eq!(written("你好", 4), rows(&["你", "好"], 1, 2));
    assert_eq!(written("a\nb", 4), rows(&["a", "b"], 1, 1));
    assert_eq!(written("a\n", 4), rows(&["a", ""], 1, 0));
}
