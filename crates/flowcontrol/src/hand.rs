//! Shuffle sharding: deals a flow a hand of queues by its hash.
//!
//! Two flows rarely get the same hand, so a flow that fills its queues leaves nearly every other flow at least one
//! free queue.

/// The hand of a hash: distinct numbers below `deck`, the same for the same hash.
pub fn deal(mut hash: u64, deck: u16, size: u16) -> impl Iterator<Item = usize> {
    let size = size.min(deck);
    let mut taken: Vec<usize> = Vec::with_capacity(size.into());
    (0..size).map(move |dealt| {
        let left = u64::from(deck - dealt);
        let mut card = (hash % left) as usize;
        hash /= left;
        // the index among the remaining cards becomes a card number; dealt cards are kept sorted
        let mut place = 0;
        while place < taken.len() && taken[place] <= card {
            card += 1;
            place += 1;
        }
        taken.insert(place, card);
        card
    })
}

/// Whether a hash has enough bits to deal such hands fairly.
pub fn is_dealable(deck: u16, size: u16) -> bool {
    let bits: f64 = (0..size.min(deck)).map(|dealt| f64::from(deck - dealt).log2()).sum();
    size <= deck && bits <= 60.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hands_have_no_card_twice_and_use_the_whole_deck() {
        let mut seen = [0u32; 64];
        for flow in 0..4000u64 {
            let hash = flow.wrapping_mul(0x9E37_79B9_7F4A_7C15);
            let mut hand: Vec<_> = deal(hash, 64, 6).collect();
            assert_eq!(hand, deal(hash, 64, 6).collect::<Vec<_>>());
            hand.iter().for_each(|card| seen[*card] += 1);
            hand.sort_unstable();
            hand.dedup();
            assert_eq!(hand.len(), 6);
        }
        // 375 of each would be even
        assert!(seen.iter().all(|count| (250..500).contains(count)), "{seen:?}");
    }

    #[test]
    fn small_decks_and_large_hands() {
        assert_eq!(deal(7, 1, 1).collect::<Vec<_>>(), [0]);
        let mut all: Vec<_> = deal(u64::MAX, 3, 9).collect();
        all.sort_unstable();
        assert_eq!(all, [0, 1, 2]);
        assert!(is_dealable(128, 6) && is_dealable(64, 8) && !is_dealable(4, 5) && !is_dealable(10_000, 6));
    }
}
