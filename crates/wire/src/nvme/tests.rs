//! What is emitted parses back; any bytes parse.

use super::registers::{MemoryBufferControl, MemoryBufferLocation, MemoryBufferSize};
use super::*;
use crate::nvme::identify::{LbaFormat, emit_controllers, emit_namespaces};
use crate::nvme::io::{Blocks, DatasetRange};
use crate::nvme::log::{ErrorEntry, FirmwareSlotLog, SmartLog};
use proptest::collection::vec;
use proptest::prelude::*;

proptest! {
    #[test]
    fn any_bytes_are_a_command(bytes in any::<[u8; 32]>(), more in any::<[u8; 32]>()) {
        let mut entry = [0; 64];
        entry[..32].copy_from_slice(&bytes);
        entry[32..].copy_from_slice(&more);
        let command = Command::parse(&entry);
        prop_assert_eq!(Command::parse(&command.emit()), command);
        if let Some(admin) = AdminCommand::parse(&command) {
            let again = admin.command(command.id, command.namespace);
            prop_assert_eq!(AdminCommand::parse(&again), Some(admin));
        }
        if let Some(io) = IoCommand::parse(&command) {
            prop_assert_eq!(IoCommand::parse(&io.command(command.id, command.namespace)), Some(io));
        }
        if let Some(pointer) = command.pointer() {
            let with = Command::new(1, 2, 3, [0; 6]).with_data(pointer);
            prop_assert_eq!(with.pointer(), Some(pointer));
        }
        let _ = command.to_string();
    }

    #[test]
    fn any_bytes_are_a_completion(bytes in any::<[u8; 16]>()) {
        let entry = CompletionEntry::parse(&bytes);
        prop_assert_eq!(CompletionEntry::parse(&entry.emit()), entry);
        prop_assert_eq!(Status::from_bits(entry.status.to_bits()), entry.status);
        let _ = entry.to_string();
    }

    #[test]
    fn registers_keep_what_they_are_given(wide in any::<u64>(), value in any::<u32>()) {
        let capabilities = Capabilities::from_bits(wide);
        prop_assert_eq!(Capabilities::from_bits(capabilities.to_bits()), capabilities);
        let configuration = Configuration::from_bits(value);
        prop_assert_eq!(Configuration::from_bits(configuration.to_bits()), configuration);
        let status = ControllerStatus::from_bits(value);
        prop_assert_eq!(ControllerStatus::from_bits(status.to_bits()), status);
        let queues = AdminQueues::from_bits(value);
        prop_assert_eq!(AdminQueues::from_bits(queues.to_bits()), queues);
        let location = MemoryBufferLocation::from_bits(value);
        prop_assert_eq!(MemoryBufferLocation::from_bits(location.to_bits()), location);
        let size = MemoryBufferSize::from_bits(value);
        prop_assert_eq!(MemoryBufferSize::from_bits(size.to_bits()), size);
        let control = MemoryBufferControl::from_bits(wide);
        prop_assert_eq!(MemoryBufferControl::from_bits(control.to_bits()), control);
        let event = AsyncEvent::from_bits(value);
        prop_assert_eq!(AsyncEvent::from_bits(event.to_bits()), event);
    }

    #[test]
    fn features_keep_what_they_are_given(id in any::<u8>(), value in any::<u32>()) {
        if let Some(feature) = Feature::from_bits(id, value) {
            prop_assert_eq!(feature.id(), id);
            prop_assert_eq!(Feature::from_bits(id, feature.to_bits()), Some(feature));
        }
    }

    #[test]
    fn any_page_is_identify_data_and_lists(page in vec(any::<u8>(), 4096)) {
        let page: [u8; 4096] = page.try_into().unwrap();
        let controller = IdentifyController::parse(&page);
        prop_assert_eq!(IdentifyController::parse(&controller.emit()), controller);
        let namespace = IdentifyNamespace::parse(&page);
        prop_assert_eq!(IdentifyNamespace::parse(&namespace.emit()), namespace.clone());
        let list = identify::parse_namespaces(&page);
        prop_assert_eq!(identify::parse_namespaces(&emit_namespaces(list.clone())), list);
        let list = identify::parse_controllers(&page);
        prop_assert_eq!(identify::parse_controllers(&emit_controllers(&list)), list);
        let _ = namespace.current_format();
    }

    #[test]
    fn any_bytes_are_logs(bytes in vec(any::<u8>(), 512)) {
        let bytes: [u8; 512] = bytes.try_into().unwrap();
        let smart = SmartLog::parse(&bytes);
        prop_assert_eq!(SmartLog::parse(&smart.emit()), smart);
        let slot = FirmwareSlotLog::parse(&bytes);
        prop_assert_eq!(FirmwareSlotLog::parse(&slot.emit()), slot);
        let entry = ErrorEntry::parse(bytes.first_chunk().unwrap());
        prop_assert_eq!(ErrorEntry::parse(&entry.emit()), entry);
        let range = DatasetRange::parse(bytes.first_chunk().unwrap());
        prop_assert_eq!(DatasetRange::parse(&range.emit()), range);
    }

    #[test]
    fn a_submission_ring_never_overtakes_its_consumer(
        entries in 2u16..20,
        steps in vec((any::<bool>(), 0u16..25), 1..200),
    ) {
        let mut ring = SubmissionRing::new(entries);
        let mut queued = 0u16;
        let mut head = 0u16;
        for (push, take) in steps {
            if push {
                prop_assert_eq!(ring.push().is_some(), queued < entries - 1);
                queued = (queued + 1).min(entries - 1);
            } else if take <= queued {
                head = (head + take) % entries;
                queued -= take;
                prop_assert!(ring.completed(head));
            } else {
                prop_assert!(!ring.completed(entries + take));
            }
            prop_assert_eq!(ring.free(), entries - 1 - queued);
        }
    }

    #[test]
    fn a_completion_ring_sees_each_entry_once(entries in 2u16..20, count in 1u32..100) {
        let mut memory = vec![[0u8; 16]; usize::from(entries)];
        let mut ring = CompletionRing::new(entries);
        for n in 0..count {
            let at = n % u32::from(entries);
            prop_assert_eq!(u32::from(ring.head()), at);
            prop_assert!(ring.take(&memory[at as usize]).is_none());
            let phase = n / u32::from(entries) % 2 == 0;
            memory[at as usize] = CompletionEntry { result: n, phase, ..Default::default() }.emit();
            prop_assert_eq!(ring.take(&memory[at as usize]).map(|entry| entry.result), Some(n));
        }
    }
}

#[test]
fn a_read_stands_as_the_specification_has_it() {
    // Section 4.2, Read command: opcode 2, PRPs, namespace 1, eight blocks from 0x123456789a on.
    let pointer = DataPointer::Prp { first: 0x1000_0200, second: 0x2000_0000 };
    let read = IoCommand::Read(Blocks::new(0x12_3456_789a, 8)).command(0x55aa, 1).with_data(pointer);
    let bytes = read.emit();
    assert_eq!(bytes[..8], [0x02, 0, 0xaa, 0x55, 1, 0, 0, 0]);
    assert_eq!(bytes[24..32], 0x1000_0200u64.to_le_bytes());
    assert_eq!(bytes[32..40], 0x2000_0000u64.to_le_bytes());
    assert_eq!(bytes[40..52], [0x9a, 0x78, 0x56, 0x34, 0x12, 0, 0, 0, 7, 0, 0, 0]);
}

#[test]
fn an_sgl_command_says_so() {
    let descriptor = SglDescriptor { address: 0x1234, length: 512, kind: SglKind::LastSegment };
    let command =
        Command::new(2, 0, 1, [0; 6]).with_data(DataPointer::Sgl { descriptor, metadata_segment: false });
    let bytes = command.emit();
    assert_eq!(bytes[1], 0x40);
    assert_eq!(bytes[39], 0x30);
}

#[test]
fn enabling_is_0x460001() {
    assert_eq!(Configuration::enabled().to_bits(), 0x0046_0001);
}

#[test]
fn status_codes_have_names() {
    assert_eq!(Status::LBA_OUT_OF_RANGE.dnr().to_string(), "LBA out of range (0/80), do not retry");
    assert_eq!(Status::INVALID_QUEUE_ID.to_bits(), 0x101);
}

#[test]
fn doorbells_follow_the_stride() {
    assert_eq!(registers::submission_doorbell(0, 0), 0x1000);
    assert_eq!(registers::completion_doorbell(1, 0), 0x100c);
    assert_eq!(registers::submission_doorbell(1, 2), 0x1020);
}

#[test]
fn a_namespace_knows_its_format() {
    let formats = vec![
        LbaFormat { block_shift: 9, ..LbaFormat::default() },
        LbaFormat { block_shift: 12, ..LbaFormat::default() },
    ];
    let namespace = IdentifyNamespace { format: 1, formats, ..IdentifyNamespace::default() };
    let again = IdentifyNamespace::parse(&namespace.emit());
    assert_eq!(again.current_format().block_shift, 12);
}
