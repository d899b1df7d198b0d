-- What passed PCIe links, for Wireshark and tshark: reads what `nearfar trace --pcapng FILE` writes.
--
--   wireshark -X lua_script:tools/pcie.lua FILE
--
-- Each packet has four bytes before it (crates/wire/src/pcap): flags, the link's generation, and the sequence number of a TLP.
-- Then a TLP (header, data, digest) or a DLLP follows as it was on the link, without framing and LCRC.
-- Formats are those of the PCI Express Base Specification, 2.2 (TLPs) and 3.5 (DLLPs).

local pcie = Proto("pcie", "PCI Express")

local f = {
    dllp = ProtoField.bool("pcie.is_dllp", "DLLP", 8, nil, 0x01),
    up = ProtoField.bool("pcie.up", "To the root", 8, nil, 0x02),
    bad = ProtoField.bool("pcie.bad_lcrc", "Bad LCRC", 8, nil, 0x04),
    generation = ProtoField.uint8("pcie.generation", "Generation"),
    sequence = ProtoField.uint16("pcie.sequence", "Sequence number"),
    type = ProtoField.string("pcie.type", "Type"),
    fmt = ProtoField.uint8("pcie.fmt", "Format", base.DEC, nil, 0xe0),
    code = ProtoField.uint8("pcie.code", "Type code", base.HEX, nil, 0x1f),
    tc = ProtoField.uint8("pcie.tc", "Traffic class", base.DEC, nil, 0x70),
    td = ProtoField.bool("pcie.td", "Digest", 8, nil, 0x80),
    ep = ProtoField.bool("pcie.ep", "Poisoned", 8, nil, 0x40),
    ro = ProtoField.bool("pcie.ro", "Relaxed ordering", 8, nil, 0x20),
    ns = ProtoField.bool("pcie.ns", "No snoop", 8, nil, 0x10),
    at = ProtoField.uint8("pcie.at", "Address type", base.DEC,
        { [0] = "untranslated", [1] = "translation request", [2] = "translated" }, 0x0c),
    length = ProtoField.uint16("pcie.length", "Length in bytes"),
    requester = ProtoField.string("pcie.requester", "Requester"),
    completer = ProtoField.string("pcie.completer", "Completer"),
    target = ProtoField.string("pcie.target", "Target"),
    tag = ProtoField.uint16("pcie.tag", "Tag"),
    first_be = ProtoField.uint8("pcie.first_be", "First byte enables", base.HEX, nil, 0x0f),
    last_be = ProtoField.uint8("pcie.last_be", "Last byte enables", base.HEX, nil, 0xf0),
    address = ProtoField.uint64("pcie.address", "Address", base.HEX),
    register = ProtoField.uint16("pcie.register", "Register", base.HEX),
    status = ProtoField.uint8("pcie.status", "Status", base.DEC,
        { [0] = "successful", [1] = "unsupported request", [2] = "retry", [4] = "completer abort" }, 0xe0),
    byte_count = ProtoField.uint16("pcie.byte_count", "Byte count", base.DEC, nil, 0x0fff),
    lower_address = ProtoField.uint8("pcie.lower_address", "Lower address", base.HEX, nil, 0x7f),
    message = ProtoField.uint8("pcie.message", "Message code", base.HEX),
    data = ProtoField.bytes("pcie.data", "Data"),
    digest = ProtoField.uint32("pcie.digest", "ECRC", base.HEX),
    class = ProtoField.string("pcie.credit_class", "Credits of"),
    headers = ProtoField.uint16("pcie.credit_headers", "Header credits"),
    units = ProtoField.uint16("pcie.credit_data", "Data credits"),
    crc = ProtoField.uint16("pcie.crc", "CRC", base.HEX),
    answered = ProtoField.framenum("pcie.answered_in", "Last answered in", base.NONE, frametype.RESPONSE),
    request = ProtoField.framenum("pcie.request_in", "Answers", base.NONE, frametype.REQUEST),
}
pcie.fields = f

local short = ProtoExpert.new("pcie.short", "The packet is shorter than its header says", expert.group.MALFORMED,
    expert.severity.ERROR)
pcie.experts = { short }

local interface_id = Field.new("frame.interface_id")

-- Reads that wait for completions, by interface, requester and tag; what answers which frame.
local waiting, request_of, answer_of = {}, {}, {}
function pcie.init() waiting, request_of, answer_of = {}, {}, {} end

local function bdf(id)
    return string.format("%02x:%02x.%d", bit.rshift(id, 8), bit.band(bit.rshift(id, 3), 0x1f), bit.band(id, 7))
end

local CREDITS = { [0] = "P", [1] = "NP", [2] = "Cpl" }

-- Names a DLLP and adds its fields.
local function dllp(tvb, tree, pinfo)
    local code = tvb(0, 1):uint()
    local name
    local kind = ({ [0x40] = "InitFC1", [0xc0] = "InitFC2", [0x80] = "UpdateFC" })[bit.band(code, 0xc0)]
    if code == 0x00 or code == 0x10 then
        name = code == 0 and "Ack" or "Nak"
        tree:add(f.sequence, tvb(2, 2), bit.band(tvb(2, 2):uint(), 0xfff))
    elseif kind and CREDITS[bit.band(bit.rshift(code, 4), 3)] then
        local class = CREDITS[bit.band(bit.rshift(code, 4), 3)]
        name = kind .. "-" .. class
        local word = tvb(1, 3):uint()
        -- A scale says how many credits one count stands for.
        local by = { [0] = 1, [1] = 1, [2] = 4, [3] = 16 }
        local headers = bit.band(bit.rshift(word, 14), 0xff) * by[bit.band(bit.rshift(word, 22), 3)]
        local units = bit.band(word, 0xfff) * by[bit.band(bit.rshift(word, 12), 3)]
        tree:add(f.class, tvb(0, 1), class)
        tree:add(f.headers, tvb(1, 2), headers)
        tree:add(f.units, tvb(2, 2), units)
        pinfo.cols.info:append(" " .. headers .. "/" .. units)
    else
        name = string.format("DLLP %02x", code)
    end
    tree:add(f.type, tvb(0, 1), name)
    tree:add(f.crc, tvb(4, 2))
    return name
end

-- Ties completions to their requests.
local function pair(pinfo, tree, key, is_request, is_last)
    local number = pinfo.number
    if not pinfo.visited then
        if is_request then
            waiting[key] = number
        elseif waiting[key] then
            request_of[number] = waiting[key]
            answer_of[waiting[key]] = number
            if is_last then waiting[key] = nil end
        end
    end
    if request_of[number] then tree:add(f.request, request_of[number]):set_generated() end
    if answer_of[number] then tree:add(f.answered, answer_of[number]):set_generated() end
end

-- Names a TLP and adds its fields.
local function tlp(tvb, tree, pinfo)
    local first, flags = tvb(0, 1):uint(), tvb(2, 1):uint()
    local fmt, code = bit.rshift(first, 5), bit.band(first, 0x1f)
    local four, has_data = bit.band(fmt, 1) == 1, bit.band(fmt, 2) == 2
    local words = bit.band(tvb(2, 2):uint(), 0x3ff)
    if words == 0 then words = 1024 end
    local header = four and 16 or 12
    if tvb:len() < header then
        tree:add_proto_expert_info(short)
        return "short TLP"
    end
    tree:add(f.fmt, tvb(0, 1))
    tree:add(f.code, tvb(0, 1))
    tree:add(f.tc, tvb(1, 1))
    tree:add(f.td, tvb(2, 1))
    tree:add(f.ep, tvb(2, 1))
    tree:add(f.ro, tvb(2, 1))
    tree:add(f.ns, tvb(2, 1))
    tree:add(f.at, tvb(2, 1))
    -- Bits 9 and 8 of a tag stand beside the traffic class.
    local second = tvb(1, 1):uint()
    local high = bit.bor(bit.lshift(bit.band(second, 0x80), 2), bit.lshift(bit.band(second, 0x08), 5))
    -- In a first pass that shows nothing Wireshark does not say which interface it is.
    local id = interface_id()
    local interface = (id and id.value or 0) .. "/"
    local name, about
    if code == 0x0a then
        name = has_data and "CplD" or "Cpl"
        local requester, tag = tvb(8, 2):uint(), high + tvb(10, 1):uint()
        tree:add(f.completer, tvb(4, 2), bdf(tvb(4, 2):uint()))
        tree:add(f.status, tvb(6, 1))
        tree:add(f.byte_count, tvb(6, 2))
        tree:add(f.requester, tvb(8, 2), bdf(requester))
        tree:add(f.tag, tvb(10, 1), tag)
        tree:add(f.lower_address, tvb(11, 1))
        local left, lower = bit.band(tvb(6, 2):uint(), 0xfff), bit.band(tvb(11, 1):uint(), 3)
        if left == 0 then left = 4096 end
        local is_last = not has_data or words * 4 - lower >= left
        pair(pinfo, tree, interface .. requester .. "/" .. tag, false, is_last)
        about = string.format("to %s, tag %d", bdf(requester), tag)
    else
        local requester, tag = tvb(4, 2):uint(), high + tvb(6, 1):uint()
        tree:add(f.requester, tvb(4, 2), bdf(requester))
        tree:add(f.tag, tvb(6, 1), tag)
        about = "from " .. bdf(requester)
        if bit.band(code, 0x18) == 0x10 then
            name = has_data and "MsgD" or "Msg"
            tree:add(f.message, tvb(7, 1))
        else
            tree:add(f.first_be, tvb(7, 1))
            tree:add(f.last_be, tvb(7, 1))
        end
        if code == 0x00 or code == 0x02 then
            local kind = code == 0 and "M" or "IO"
            name = kind .. (has_data and "Wr" or "Rd")
            if code == 0 then name = name .. (four and "(64)" or "(32)") end
            local address = four and tvb(8, 8):uint64() or UInt64(tvb(8, 4):uint())
            -- The last two bits hint at how the data are used.
            address = address:band(UInt64(0xfffffffc, 0xffffffff))
            tree:add(f.address, tvb(8, four and 8 or 4), address)
            about = "0x" .. address:tohex():gsub("^0+", "") .. " " .. about
        elseif code == 0x04 or code == 0x05 then
            name = (has_data and "CfgWr" or "CfgRd") .. (code - 4)
            tree:add(f.target, tvb(8, 2), bdf(tvb(8, 2):uint()))
            tree:add(f.register, tvb(10, 2), bit.band(tvb(10, 2):uint(), 0xffc))
        end
        if not (has_data and code == 0x00) and name and bit.band(code, 0x18) ~= 0x10 then
            pair(pinfo, tree, interface .. requester .. "/" .. tag, true, false)
        end
    end
    name = name or string.format("TLP %02x", first)
    tree:add(f.type, tvb(0, 1), name)
    if has_data or code == 0x00 then tree:add(f.length, tvb(2, 2), words * 4) end
    local digest = bit.band(flags, 0x80) ~= 0 and 4 or 0
    local data = has_data and words * 4 or 0
    if tvb:len() < header + data + digest then
        tree:add_proto_expert_info(short)
    else
        if data > 0 then tree:add(f.data, tvb(header, data)) end
        if digest > 0 then tree:add(f.digest, tvb(header + data, 4)) end
    end
    pinfo.cols.info:append(" " .. (data > 0 and data .. " B " or "") .. about)
    return name
end

function pcie.dissector(tvb, pinfo, tree)
    pinfo.cols.protocol = "PCIe"
    pinfo.cols.info = ""
    local flags = tvb(0, 1):uint()
    local is_dllp, is_up = bit.band(flags, 1) == 1, bit.band(flags, 2) == 2
    local part = tree:add(pcie, tvb(), "PCI Express, " .. (is_up and "to the root" or "to the device"))
    part:add(f.dllp, tvb(0, 1))
    part:add(f.up, tvb(0, 1))
    part:add(f.bad, tvb(0, 1))
    part:add(f.generation, tvb(1, 1))
    if not is_dllp then part:add(f.sequence, tvb(2, 2)) end
    pinfo.cols.src = is_up and "device" or "root"
    pinfo.cols.dst = is_up and "root" or "device"
    local rest = tvb(4):tvb()
    local name
    if is_dllp then name = dllp(rest, part, pinfo) else name = tlp(rest, part, pinfo) end
    part:append_text(", " .. name)
    pinfo.cols.info:prepend(name)
end

-- The first link type for private use.
DissectorTable.get("wtap_encap"):add(wtap.USER0, pcie)
