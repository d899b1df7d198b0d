//! Which build of the program this is: the number that the linker made of all that is in it.

use std::fs::File;
use std::os::unix::fs::FileExt as _;

/// A segment with notes, and the note with the build's number (ELF, `PT_NOTE`; GNU's `NT_GNU_BUILD_ID`).
const NOTES: u32 = 4;
const BUILD_ID: u32 = 3;
/// Bytes of the header of a file and of a segment, in ELF's 64-bit form, and of a note's head.
const FILE_HEAD: usize = 64;
const SEGMENT_HEAD: usize = 56;
const NOTE_HEAD: usize = 12;
/// More bytes of notes are not looked at.
const MOST: u64 = 1 << 16;

fn u16_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?).into())
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

/// The number of a program's build; `None` if its linker made none.
pub fn of(program: &File) -> Option<Vec<u8>> {
    let mut head = [0; FILE_HEAD];
    program.read_exact_at(&mut head, 0).ok()?;
    // 64 bits, least significant byte first.
    if !head.starts_with(b"\x7fELF\x02\x01") {
        return None;
    }
    let (table, each, count) = (u64_at(&head, 32)?, u16_at(&head, 54)?, u16_at(&head, 56)?);
    (0..count).find_map(|number| {
        let mut segment = [0; SEGMENT_HEAD];
        program.read_exact_at(&mut segment, table.checked_add(number * each)?).ok()?;
        let (kind, at, length) = (u32_at(&segment, 0)?, u64_at(&segment, 8)?, u64_at(&segment, 32)?);
        if kind != NOTES || length > MOST {
            return None;
        }
        let mut notes = vec![0; length as usize];
        program.read_exact_at(&mut notes, at).ok()?;
        build_id(&notes)
    })
}

/// The build's number among notes.
fn build_id(mut notes: &[u8]) -> Option<Vec<u8>> {
    while notes.len() >= NOTE_HEAD {
        let (name, value) = (u32_at(notes, 0)? as usize, u32_at(notes, 4)? as usize);
        let kind = u32_at(notes, 8)?;
        let start = NOTE_HEAD.checked_add(name.next_multiple_of(4))?;
        let end = start.checked_add(value)?;
        if kind == BUILD_ID && notes.get(NOTE_HEAD..NOTE_HEAD + name)? == b"GNU\0" {
            return notes.get(start..end).map(<[u8]>::to_vec);
        }
        notes = notes.get(end.next_multiple_of(4)..)?;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(kind: u32, name: &[u8], value: &[u8]) -> Vec<u8> {
        let mut bytes = [name.len() as u32, value.len() as u32, kind].map(u32::to_le_bytes).concat();
        for part in [name, value] {
            bytes.extend(part);
            bytes.resize(bytes.len().next_multiple_of(4), 0);
        }
        bytes
    }

    #[test]
    fn the_number_is_found_among_other_notes() {
        let all =
            [note(1, b"GNU\0", &[9; 16]), note(3, b"Go\0", &[8; 5]), note(3, b"GNU\0", &[7; 20])].concat();
        assert_eq!(build_id(&all), Some(vec![7; 20]));
        for length in 0..all.len() {
            assert_eq!(build_id(&all[..length]), None, "{length} bytes");
        }
        assert_eq!(build_id(&[0xff; 64]), None);
    }

    #[test]
    fn a_text_has_none() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), [b'x'; 200]).unwrap();
        assert_eq!(of(file.as_file()), None);
    }
}
