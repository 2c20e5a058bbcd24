use super::*;
use flate2::{Compression, write::GzEncoder};
use proptest::prelude::*;
use std::{io::Seek, path::Path};
use tar::{Builder, EntryType, Header};

fn header(path: &str, kind: EntryType, size: u64) -> Header {
    let mut header = Header::new_gnu();
    // `set_path` refuses what a hostile archive has.
    let name = &mut header.as_old_mut().name;
    name[..path.len()].copy_from_slice(path.as_bytes());
    header.set_entry_type(kind);
    header.set_size(size);
    header.set_mode(0o4777);
    header.set_cksum();
    header
}

fn file(path: &str, bytes: &[u8]) -> (Header, Vec<u8>) {
    (header(path, EntryType::Regular, bytes.len() as u64), bytes.to_vec())
}

fn link(path: &str, kind: EntryType, target: &str) -> (Header, Vec<u8>) {
    let mut header = header(path, kind, 0);
    header.as_old_mut().linkname[..target.len()].copy_from_slice(target.as_bytes());
    header.set_cksum();
    (header, Vec::new())
}

fn archive(entries: &[(Header, Vec<u8>)]) -> Vec<u8> {
    let mut builder = Builder::new(Vec::new());
    for (header, bytes) in entries {
        builder.append(header, &bytes[..]).unwrap();
    }
    builder.into_inner().unwrap()
}

fn plain() -> Archive {
    Archive { gzip: false, below: None, layer: false }
}

fn layer() -> Archive {
    Archive { gzip: false, below: Some(RelativePath::parse("models").unwrap()), layer: true }
}

fn blob(bytes: &[u8]) -> File {
    let mut blob = tempfile::tempfile().unwrap();
    blob.write_all(bytes).unwrap();
    blob.rewind().unwrap();
    blob
}

fn unpacked(into: &Path, archives: &[(Vec<u8>, Archive)]) -> Result<Vec<String>, String> {
    let bounds = Bounds { max_files: 20, max_bytes: 1 << 20, wrote: &|_| Ok(()) };
    let mut unpacker = Unpacker::new(Dir::open(into).unwrap(), bounds);
    for (bytes, archive) in archives {
        unpacker.unpack("the archive", blob(bytes), archive).map_err(|error| error.to_string())?;
    }
    Ok(unpacker.files().into_keys().map(String::from).collect())
}

fn refusal(entries: &[(Header, Vec<u8>)]) -> String {
    let folder = tempfile::tempdir().unwrap();
    let into = folder.path().join("in");
    std::fs::create_dir(&into).unwrap();
    let message = unpacked(&into, &[(archive(entries), plain())]).unwrap_err();
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "something is outside of the folder");
    message
}

#[test]
fn files_have_their_bytes_and_a_fixed_mode() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let long = format!("{}/config.json", "deep".repeat(40));
    let mut builder = Builder::new(Vec::new());
    let mut header = Header::new_gnu();
    header.set_size(2);
    builder.append_data(&mut header, &long, &b"{}"[..]).unwrap();
    let mut bytes = builder.into_inner().unwrap();
    bytes.truncate(bytes.len() - 1024);
    bytes.extend(archive(&[
        file("./a/b.bin", &[7; 1000]),
        link("a/c.bin", EntryType::Symlink, "./b.bin"),
        link("d", EntryType::Link, "a/b.bin"),
    ]));
    assert_eq!(unpacked(folder.path(), &[(bytes, plain())]).unwrap(), ["a/b.bin", "a/c.bin", "d", long.as_str()]);
    let metadata = std::fs::symlink_metadata(folder.path().join("a/c.bin")).unwrap();
    assert!(metadata.is_file());
    assert_eq!(metadata.permissions().mode() & 0o7777, 0o644);
    assert_eq!(std::fs::read(folder.path().join("d")).unwrap(), [7; 1000]);
}

#[test]
fn hostile_entries_are_refused_each_with_its_reason() {
    for (entries, expected) in [
        (vec![file("../evil", b"x")], "has the part \"..\""),
        (vec![file("a/../../evil", b"x")], "has the part \"..\""),
        (vec![file("/etc/passwd", b"x")], "is absolute"),
        (vec![link("a", EntryType::Symlink, "/etc/passwd")], "leads to no file of the model"),
        (vec![link("a", EntryType::Symlink, "../../etc/passwd")], "which is outside of it"),
        (vec![link("a", EntryType::Symlink, "."), file("a/b", b"x")], "has the link \"a\""),
        (vec![link("a", EntryType::Link, "../../x")], "which is outside of it"),
        (vec![link("a", EntryType::Symlink, "b"), link("b", EntryType::Symlink, "a")], "leads to no file"),
        (vec![(header("dev", EntryType::Block, 0), Vec::new())], "neither a file nor a folder"),
        (vec![(header("pipe", EntryType::Fifo, 0), Vec::new())], "neither a file nor a folder"),
        ((0..21).map(|index| file(&format!("f{index}"), b"x")).collect(), "more than 20 files"),
        ((0..201).map(|index| (header(&format!("d{index}"), EntryType::Directory, 0), Vec::new())).collect(), "more than 200 entries"),
        (vec![file("large", &vec![0; (1 << 20) + 1])], "more than 1048576 bytes unpacked"),
    ] {
        let message = refusal(&entries);
        assert!(message.starts_with("the archive the archive ") && message.contains(expected), "{message}");
    }
}

#[test]
fn what_is_no_archive_or_ends_early_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let whole = archive(&[file("a", &[1; 3000])]);
    for cut in [100, 600, 2000] {
        let message = unpacked(folder.path(), &[(whole[..cut].to_vec(), plain())]).unwrap_err();
        assert!(message.contains("ends early"), "{message}");
    }
    assert!(unpacked(folder.path(), &[(vec![9; 2000], plain())]).unwrap_err().contains("can't be read"));
    // A long name of 4 GiB, which must not be read into memory.
    let long = archive(&[(header("././@LongLink", EntryType::GNULongName, 4 << 30), Vec::new())]);
    assert!(unpacked(folder.path(), &[(long, plain())]).unwrap_err().contains("more than 64 KiB"));
}

#[test]
fn a_bomb_ends_at_the_limit() {
    let folder = tempfile::tempdir().unwrap();
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(&archive(&[file("zeros", &vec![0; 64 << 20])])).unwrap();
    let message = unpacked(folder.path(), &[(encoder.finish().unwrap(), Archive { gzip: true, ..plain() })]).unwrap_err();
    assert!(message.contains("more than 1048576 bytes unpacked"), "{message}");
}

#[test]
fn layers_bring_only_the_models_folder_and_remove_files_of_those_below() {
    let folder = tempfile::tempdir().unwrap();
    let first = archive(&[file("etc/shadow", b"x"), file("models/a", b"1"), file("models/sub/b", b"2"), file("models/sub/c", b"3")]);
    let second =
        archive(&[file("models/.wh.a", b""), file("models/sub/.wh..wh..opq", b""), file("models/sub/d", b"4"), file("./models/e", b"5")]);
    assert_eq!(unpacked(folder.path(), &[(first, layer()), (second, layer())]).unwrap(), ["e", "sub/d"]);
    assert!(!folder.path().join("a").exists() && !folder.path().join("sub/b").exists() && !folder.path().join("etc").exists());
}

proptest! {
    #[test]
    fn no_archive_reaches_beyond_its_folder(entries in proptest::collection::vec(("[a./]{1,9}", "[a./]{1,9}", 0u8..4), 0..8)) {
        let entries: Vec<_> = entries.iter().map(|(path, target, kind)| match kind {
            0 => link(path, EntryType::Symlink, target),
            1 => link(path, EntryType::Link, target),
            2 => (header(path, EntryType::Directory, 0), Vec::new()),
            _ => file(path, b"bytes"),
        }).collect();
        let folder = tempfile::tempdir().unwrap();
        let into = folder.path().join("in");
        std::fs::create_dir(&into).unwrap();
        if let Ok(files) = unpacked(&into, &[(archive(&entries), plain())]) {
            for file in files {
                prop_assert!(std::fs::symlink_metadata(into.join(file)).unwrap().is_file());
            }
        }
        prop_assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn random_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..2000), gzip in any::<bool>()) {
        let folder = tempfile::tempdir().unwrap();
        let _ = unpacked(folder.path(), &[(bytes, Archive { gzip, ..plain() })]);
    }
}
