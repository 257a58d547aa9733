use super::*;
use crate::testing::write_program;
use env::Simulated;
use std::path::Path;
use std::sync::Arc;

/// A provider that logs its requests: a line with the request, and one with its argument and variable.
fn provider(dir: &Path, answer: &str) -> ProviderConfig {
    let log = dir.join("log");
    let script = format!("cat >> {}\necho \"$1 $X\" >> {0}\ncat <<'EOF'\n{answer}\nEOF\n", log.display());
    scripted(dir, &script)
}

fn scripted(dir: &Path, script: &str) -> ProviderConfig {
    let program = dir.join("provider");
    write_program(&program, script);
    ProviderConfig {
        name: "provider".to_owned(),
        program,
        match_images: vec!["*.test".to_owned()],
        default_cache: Duration::ZERO,
        api_version: "g/v1".to_owned(),
        args: vec!["two words".to_owned()],
        env: vec![("X".to_owned(), "from-config".to_owned())],
    }
}

fn answer(key: &str, cache: &str, host: &str) -> String {
    answer_for("u", key, cache, host)
}

fn answer_for(user: &str, key: &str, cache: &str, host: &str) -> String {
    format!(
        r#"{{"kind":"CredentialProviderResponse","apiVersion":"g/v1","cacheKeyType":"{key}","cacheDuration":"{cache}","auth":{{"{host}":{{"username":"{user}","password":"p"}}}}}}"#
    )
}

fn set(configs: Vec<ProviderConfig>, clock: &Arc<Simulated>) -> ProviderSet {
    ProviderSet::new(configs, DockerConfig::default(), clock.clone(), AgentMetrics::default())
}

fn requests(dir: &Path) -> usize {
    std::fs::read_to_string(dir.join("log")).unwrap_or_default().lines().count() / 2
}

/// Waits until a program has written something.
async fn written(path: &Path) {
    while std::fs::read_to_string(path).unwrap_or_default().is_empty() {
        tokio::task::spawn_blocking(std::thread::yield_now).await.unwrap();
    }
}

#[tokio::test]
async fn answers_are_kept_as_long_as_they_say() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Simulated::new(1_700_000_000, 1);
    let set = set(vec![provider(dir.path(), &answer("Registry", "10m", "a.test"))], &clock);
    let get = async |image: &str| set.credentials(image).await.len();
    assert_eq!(get("a.test/x").await, 1);
    let text = std::fs::read_to_string(dir.path().join("log")).unwrap();
    let request = "{\"apiVersion\":\"g/v1\",\"image\":\"a.test/x\",\"kind\":\"CredentialProviderRequest\"}\n";
    assert_eq!(text, format!("{request}two words from-config\n"));
    assert_eq!(get("a.test/y").await, 1);
    assert_eq!(get("other/y").await, 0);
    assert_eq!(requests(dir.path()), 1);
    clock.advance(Duration::from_secs(601));
    assert_eq!(get("a.test/y").await, 1);
    assert_eq!(requests(dir.path()), 2);
}

#[tokio::test]
async fn an_answer_is_good_for_the_images_that_its_key_covers() {
    for (key, runs) in [("Image", 3), ("Registry", 2), ("Global", 1)] {
        let dir = tempfile::tempdir().unwrap();
        let clock = Simulated::new(1_700_000_000, 1);
        let set = set(vec![provider(dir.path(), &answer(key, "10m", "*.test"))], &clock);
        for image in ["a.test/x", "a.test/x", "a.test/y", "b.test/x"] {
            assert_eq!(set.credentials(image).await.len(), 1, "{key} {image}");
        }
        assert_eq!(requests(dir.path()), runs, "{key}");
    }
}

#[tokio::test]
async fn answers_for_other_hosts_and_failures_give_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let check = async |text: &str, expected: usize| {
        let clock = Simulated::new(1_700_000_000, 1);
        let set = set(vec![provider(dir.path(), text)], &clock);
        assert_eq!(set.credentials("a.test/x").await.len(), expected, "{text}");
    };
    check(&answer("Image", "0s", "other.test"), 0).await;
    check(&answer("Image", "0s", "*.test"), 1).await;
    check("not json", 0).await;
    check("", 0).await;
}

#[tokio::test]
async fn the_first_provider_that_covers_an_image_comes_first() {
    let dirs = [(); 3].map(|()| tempfile::tempdir().unwrap());
    let configs = ["z", "a", "other"].into_iter().zip(&dirs).map(|(user, dir)| {
        let config = provider(dir.path(), &answer_for(user, "Image", "0s", "a.test"));
        let pattern = if user == "other" { "b.test" } else { "a.test" };
        ProviderConfig { name: user.to_owned(), match_images: vec![pattern.to_owned()], ..config }
    });
    let set = set(configs.collect(), &Simulated::new(1_700_000_000, 1));
    let users: Vec<String> = set.credentials("a.test/x").await.into_iter().map(|it| it.username).collect();
    assert_eq!(users, ["z", "a"]);
    assert_eq!(requests(dirs[2].path()), 0);
}

#[tokio::test]
async fn pulls_of_one_image_share_a_run() {
    let dir = tempfile::tempdir().unwrap();
    let set =
        set(vec![provider(dir.path(), &answer("Image", "0s", "a.test"))], &Simulated::new(1_700_000_000, 1));
    let (first, second) = tokio::join!(set.credentials("a.test/x"), set.credentials("a.test/x"));
    assert_eq!((first.len(), second.len(), requests(dir.path())), (1, 1, 1));
}

#[tokio::test]
async fn a_provider_that_hangs_ends_at_its_time_limit_and_delays_no_other_image() {
    let dir = tempfile::tempdir().unwrap();
    let hung = dir.path().join("hung");
    let script = format!(
        "read -r request\ncase \"$request\" in *slow*) echo 1 > {}; exec sleep 30;; esac\ncat <<'EOF'\n{}\nEOF\n",
        hung.display(),
        answer("Image", "0s", "a.test")
    );
    let clock = Simulated::new(1_700_000_000, 1);
    let set = Arc::new(set(vec![scripted(dir.path(), &script)], &clock));
    let owner = set.clone();
    let mut slow = tokio::spawn(async move { owner.credentials("a.test/slow").await.len() });
    written(&hung).await;
    tokio::select! {
        biased;
        found = set.credentials("a.test/fast") => assert_eq!(found.len(), 1),
        _ = &mut slow => panic!("another image waits for the program"),
    }
    assert!(!slow.is_finished());
    clock.advance(plugin::TIMEOUT);
    assert_eq!(slow.await.unwrap(), 0);
}
