//! What images declare: volumes and users.

use super::*;

/// Adds an image with files; `run` is the inside of its configuration.
fn add_image(machine: &Machine, image: &str, run: &str, files: &[(&str, u32)]) {
    let folder = machine.folder.path().join(image.replace(['/', ':'], "-"));
    for (name, mode) in files {
        let path = folder.join("files").join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, *name).unwrap();
        fs::set_permissions(path.parent().unwrap(), fs::Permissions::from_mode(*mode)).unwrap();
    }
    let archive = folder.join("image.tar");
    make_image_with(&folder, &archive, image, run);
    import(machine.runtime.image_store(), &archive, None).unwrap();
}

pub async fn volumes_of_an_image_are_beside_the_files_of_the_container() {
    let machine = Machine::new().await;
    let image = "registry.test/volumes:1";
    let volumes = r#""Volumes": {"/data": {}, "/data/deep": {}, "/new": {}, "/taken": {}}"#;
    add_image(&machine, image, volumes, &[("data/file", 0o1777), ("taken/hidden", 0o755)]);
    let taken = machine.folder.path().join("taken");
    fs::create_dir(&taken).unwrap();
    let sandbox = machine.runtime.run_sandbox(&machine.sandbox_config(), handler()).await.unwrap();
    let script = "cat /data/file && busybox stat -c %a /data && ls /taken && echo x > /data/deep/x && echo y > /new/y \
        && echo z > /data/z && ! touch /z 2>/dev/null && grep -c -E ' (/data|/data/deep|/new|/taken) ' /proc/mounts";
    let mut config = ContainerConfig { image: image.into(), ..container(script) };
    config.linux.security.readonly_rootfs = true;
    config.mounts = vec![Mount {
        host_path: taken.display().to_string(),
        container_path: "/taken/".into(),
        ..Mount::default()
    }];
    let id = machine.run(&sandbox, &config).await;
    assert_eq!(machine.wait(&id).await.exit_code, 0, "{:?}", machine.log("0.log"));
    let lines: Vec<_> = machine.log("0.log").into_iter().map(|it| it.1).collect();
    assert_eq!(lines, ["data/file1777", "4"]);
    let container = machine.options.root.join("sandboxes").join(&sandbox).join("containers").join(&id);
    // its own files have none of it
    let own: Vec<_> = fs::read_dir(container.join("upper/data")).into_iter().flatten().flatten().collect();
    assert!(own.iter().all(|it| it.file_name() == "deep"), "{own:?}");
    // another container of the image begins with the image's content
    let config = ContainerConfig { log_path: "1.log".into(), name: "d".into(), ..config };
    let config = ContainerConfig { command: words(&["/bin/ls", "/data"]), ..config };
    let other = machine.run(&sandbox, &config).await;
    machine.wait(&other).await;
    let lines: Vec<_> = machine.log("1.log").into_iter().map(|it| it.1).collect();
    assert_eq!(lines, ["deep", "file"]);
    machine.runtime.remove_container(&id).await.unwrap();
    assert!(!container.exists());
    machine.finish().await;
}

pub async fn a_user_that_the_image_lacks_is_an_error_of_the_creation() {
    let machine = Machine::new().await;
    let image = "registry.test/user:1";
    add_image(&machine, image, r#""User": "absent""#, &[]);
    let sandbox = machine.runtime.run_sandbox(&machine.sandbox_config(), handler()).await.unwrap();
    let create = async |user: &str, image: &str| {
        let mut config = ContainerConfig { image: image.into(), ..container("id -u") };
        config.linux.security.run_as_username = user.into();
        let created = machine.runtime.create_container(&sandbox, &config, &machine.sandbox_config()).await;
        created.map_err(|why| why.message)
    };
    let refused = Err("failed to create container: no users found".to_owned());
    assert_eq!(create("", image).await, refused);
    assert_eq!(create("other", IMAGE).await, refused);
    let refused = Err("failed to create container: no groups found".to_owned());
    assert_eq!(create("app:absent", IMAGE).await, refused);
    assert_eq!(machine.runtime.containers(None).await.unwrap().len(), 0);
    let left =
        fs::read_dir(machine.options.root.join("sandboxes").join(&sandbox).join("containers")).unwrap();
    assert_eq!(left.count(), 0);
    for user in ["app:team", "4000:4000"] {
        let id = create(user, image).await.unwrap();
        machine.runtime.start_container(&id).await.unwrap();
        machine.wait(&id).await;
    }
    let lines: Vec<_> = machine.log("0.log").into_iter().map(|it| it.1).collect();
    assert_eq!(lines, ["1000", "4000"]);
    machine.finish().await;
}
