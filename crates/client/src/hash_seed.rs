//! The hash function of maps whose order decides about the order of work: it follows from the world, so that in a simulated
//! world with a seed it is the same in every run, and no one outside can choose keys that collide.

use env::World;
use std::hash::{BuildHasher, DefaultHasher, Hasher, RandomState};

/// See the module.
#[derive(Debug, Clone)]
pub(crate) struct HashSeed(u64);

impl HashSeed {
    pub fn of(world: &World) -> Self {
        HashSeed(env::random_u64(world))
    }
}

impl Default for HashSeed {
    fn default() -> Self {
        HashSeed(RandomState::new().build_hasher().finish())
    }
}

impl BuildHasher for HashSeed {
    type Hasher = DefaultHasher;

    fn build_hasher(&self) -> DefaultHasher {
        let mut hasher = DefaultHasher::new();
        hasher.write_u64(self.0);
        hasher
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use env::Simulated;

    #[test]
    fn hashes_follow_from_the_seed_of_the_world() {
        let of = |seed| {
            let world: World = Simulated::new(0, seed);
            HashSeed::of(&world).hash_one("a")
        };
        assert_eq!(of(1), of(1));
        assert_ne!(of(1), of(2));
        assert_ne!(HashSeed::default().hash_one("a"), HashSeed::default().hash_one("a"));
    }
}
