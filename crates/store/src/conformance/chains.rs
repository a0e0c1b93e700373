//! Hash chains of tapes.

use capstan_protocol::EntryId;
use capstan_tape::{ChainHash, ChainLink, ContentDigest, Fact, TapeRepository, TapeSlice};

use super::fixture::{
    append_batch, batch_entry, commit_to_tapes, create_tape_batch, single_fact_batch, tape_name, unusual_entries,
    user_message,
};

/// Hashes of the entries of a tape after a position, computed from the entries.
async fn expected_links(tapes: &TapeRepository, tape: &str, start: ChainLink) -> Vec<ChainLink> {
    let entries = tapes.read_any_generation(&tape_name(tape), &TapeSlice::after(start.id)).await.unwrap();
    let mut last = start.hash;
    let link = |entry: &capstan_tape::Entry| {
        last = last.link(tape, entry.id, entry.date.as_str(), &ContentDigest::from_entry(entry));
        ChainLink { id: entry.id, hash: last }
    };
    entries.iter().map(link).collect()
}

async fn stored_links(tapes: &TapeRepository, tape: &str) -> Vec<ChainLink> {
    tapes.store().chain_page(&tape_name(tape), EntryId(0), usize::MAX).await.unwrap()
}

const START: ChainLink = ChainLink { id: EntryId(0), hash: ChainHash::START };

pub(super) async fn p17_every_entry_is_linked_to_the_one_before_it(tapes: &TapeRepository) {
    let tape = tape_name("t");
    commit_to_tapes(tapes, create_tape_batch(&tape, [user_message("one")])).await;
    let imported = Fact::ImportEntries { tape: tape.clone(), entries: unusual_entries() };
    commit_to_tapes(tapes, single_fact_batch(imported)).await;
    let named = user_message("named").with_named_messages(vec![batch_entry(0)]);
    commit_to_tapes(tapes, append_batch(&tape, [user_message("two"), named])).await;
    tapes.reset(&tape, false).await.unwrap();
    commit_to_tapes(tapes, append_batch(&tape, [user_message("after the reset")])).await;
    let links = stored_links(tapes, "t").await;
    assert_eq!(links, expected_links(tapes, "t", START).await);
    let head = tapes.chain_head(&tape).await.unwrap().unwrap();
    assert_eq!((head.id, head.hash), links.last().map(|link| (link.id, link.hash)).unwrap());
    assert_eq!(tapes.check_head(&head).await.unwrap(), None);
    let page = tapes.store().chain_page(&tape, links[1].id, 2).await.unwrap();
    assert_eq!(page, links[2..4]);
    let gap = EntryId(links[2].id.0 - 1);
    assert_eq!(tapes.store().chain_link(&tape, gap).await.unwrap(), Some(links[1]), "ids 3 to 6 were never used");
    assert_eq!(tapes.verify().await.unwrap(), []);
}

pub(super) async fn p17_chain_of_a_fork_starts_at_its_position(tapes: &TapeRepository) {
    let (tape, fork, inner, early) = (tape_name("t"), tape_name("f"), tape_name("g"), tape_name("e"));
    commit_to_tapes(tapes, create_tape_batch(&tape, [user_message("1"), user_message("2"), user_message("3")])).await;
    tapes.fork(&tape, &fork, Some(EntryId(2))).await.unwrap();
    let unchanged = tapes.chain_head(&fork).await.unwrap().unwrap();
    assert_eq!(tapes.check_head(&unchanged).await.unwrap(), None, "the head of a new fork is an entry of its parent");
    commit_to_tapes(tapes, append_batch(&fork, [user_message("f1"), user_message("f2")])).await;
    tapes.fork(&fork, &inner, Some(EntryId(3))).await.unwrap();
    // The position is an entry of the grandparent.
    tapes.fork(&fork, &early, Some(EntryId(1))).await.unwrap();
    for fork in [&inner, &early] {
        commit_to_tapes(tapes, append_batch(fork, [user_message("inner")])).await;
    }
    let (of_tape, of_fork) = (stored_links(tapes, "t").await, stored_links(tapes, "f").await);
    assert_eq!(of_fork, expected_links(tapes, "f", of_tape[1]).await);
    assert_eq!(stored_links(tapes, "g").await, expected_links(tapes, "g", of_fork[0]).await);
    assert_eq!(stored_links(tapes, "e").await, expected_links(tapes, "e", of_tape[0]).await);
    tapes.merge(&fork).await.unwrap();
    assert_eq!(stored_links(tapes, "t").await, expected_links(tapes, "t", START).await, "merged entries are appended");
    assert_eq!(tapes.verify().await.unwrap(), []);
}

pub(super) async fn p17_kept_head_that_is_no_part_of_the_chain_is_reported(tapes: &TapeRepository) {
    let tape = tape_name("t");
    commit_to_tapes(tapes, create_tape_batch(&tape, [user_message("one")])).await;
    let kept = tapes.chain_head(&tape).await.unwrap().unwrap();
    commit_to_tapes(tapes, append_batch(&tape, [user_message("two")])).await;
    assert_eq!(tapes.check_head(&kept).await.unwrap(), None, "later entries do not matter");
    let newest = tapes.chain_head(&tape).await.unwrap().unwrap();
    let mut others = [kept.clone(), kept.clone(), kept];
    others[0].hash = newest.hash;
    others[1].id = EntryId(9);
    others[2].tape = tape_name("unknown");
    for head in others {
        assert!(tapes.check_head(&head).await.unwrap().is_some(), "{head}");
    }
}
