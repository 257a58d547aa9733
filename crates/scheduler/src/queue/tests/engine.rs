//! The queue with profiles of the engine.

use super::*;
use crate::framework::Profile;

#[test]
fn options_follow_the_profiles() {
    let mut gateless = Profile { scheduler_name: "other".to_owned(), ..Profile::default() };
    gateless.plugins.pre_enqueue.clear();
    let options = Options::for_profiles(&[Profile::default(), gateless]);
    assert_eq!(options.gated_profiles, ["default-scheduler".to_owned()].into());
    assert!(
        options.plugins.contains(Plugin::ImageLocality) && options.plugins.contains(Plugin::SchedulingGates)
    );
    assert!(!options.plugins.contains(Plugin::SelectorSpread));
}
