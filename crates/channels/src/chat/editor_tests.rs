use super::{EditorLayout, KeyInput, MessageEditor};

fn editor_with(text: &str) -> MessageEditor {
    let mut editor = MessageEditor::default();
    editor.press(&KeyInput::Paste(text.to_owned()));
    editor
}

fn press_all(editor: &mut MessageEditor, keys: &[KeyInput]) -> String {
    for key in keys {
        assert!(editor.press(key), "{key:?}");
    }
    format!("{}|{}", editor.before_cursor(), &editor.text()[editor.before_cursor().len()..])
}

#[test]
fn c01_grapheme_clusters_are_moved_over_and_deleted_as_a_unit() {
    let mut editor = editor_with("aé你👩\u{200d}👧");
    assert_eq!(press_all(&mut editor, &[KeyInput::Left]), "aé你|👩\u{200d}👧");
    assert_eq!(press_all(&mut editor, &[KeyInput::Delete, KeyInput::Backspace]), "aé|");
    assert_eq!(
        press_all(&mut editor, &[KeyInput::Left, KeyInput::Left, KeyInput::Left, KeyInput::Character('x')]),
        "x|aé"
    );
}

#[test]
fn c01_words_and_lines_are_moved_over_and_deleted() {
    let mut editor = editor_with("one two-three  four");
    assert_eq!(press_all(&mut editor, &[KeyInput::WordLeft]), "one two-three  |four");
    assert_eq!(press_all(&mut editor, &[KeyInput::DeleteWord]), "one two-|four");
    assert_eq!(press_all(&mut editor, &[KeyInput::Home, KeyInput::WordRight]), "one| two-four");
    assert_eq!(press_all(&mut editor, &[KeyInput::DeleteToEnd]), "one|");
    assert_eq!(
        press_all(&mut editor, &[KeyInput::NewLine, KeyInput::Character('x'), KeyInput::DeleteToStart]),
        "one\n|"
    );
}

#[test]
fn c01_paste_of_several_lines_is_one_text() {
    let mut editor = editor_with("one\r\ntwo\rthree \u{1b}[31mred");
    assert_eq!(editor.text(), "one\ntwo\nthree red");
    assert_eq!(press_all(&mut editor, &[KeyInput::Up]), "one\ntwo|\nthree red");
    assert_eq!(press_all(&mut editor, &[KeyInput::Left, KeyInput::Down]), "one\ntwo\nth|ree red");
    assert_eq!(editor.submit(), "one\ntwo\nthree red");
    assert!(editor.is_empty());
}

#[test]
fn c01_pasted_tab_is_sent_as_a_tab() {
    let mut editor = editor_with("a:\n\tb");
    assert_eq!(editor.layout(20).rows, ["a:", "    b"]);
    assert_eq!(editor.layout(5).rows, ["a:", "    ", "b"]);
    assert_eq!(press_all(&mut editor, &[KeyInput::Left, KeyInput::Left]), "a:\n|\tb");
    assert_eq!(editor.submit(), "a:\n\tb");
}

#[test]
fn c01_history_is_recalled_and_the_draft_is_kept() {
    let mut editor = MessageEditor::new(vec!["first".to_owned(), "second".to_owned()]);
    editor.press(&KeyInput::Paste("draft".to_owned()));
    assert_eq!(press_all(&mut editor, &[KeyInput::Up]), "second|");
    assert_eq!(press_all(&mut editor, &[KeyInput::Up, KeyInput::Up]), "first|");
    assert_eq!(press_all(&mut editor, &[KeyInput::Down, KeyInput::Down]), "draft|");
    assert_eq!(editor.submit(), "draft");
    assert_eq!(press_all(&mut editor, &[KeyInput::Up]), "draft|");
}

#[test]
fn c01_layout_reserves_a_column_for_the_cursor() {
    let layout = |text: &str, width| editor_with(text).layout(width);
    let rows = |rows: &[&str], row, column| EditorLayout {
        rows: rows.iter().map(|row| (*row).to_owned()).collect(),
        cursor_row: row,
        cursor_column: column,
    };
    assert_eq!(layout("", 10), rows(&[""], 0, 0));
    assert_eq!(layout("abc", 4), rows(&["abc"], 0, 3));
    assert_eq!(layout("abcd", 4), rows(&["abc", "d"], 1, 1));
    assert_eq!(layout("你好", 4), rows(&["你", "好"], 1, 2));
    assert_eq!(layout("a\nb", 4), rows(&["a", "b"], 1, 1));
    assert_eq!(layout("a\n", 4), rows(&["a", ""], 1, 0));
}
