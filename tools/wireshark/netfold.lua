-- Wireshark and tshark learn Netfold's data packets (core/wire/PROTOCOL.md).
--
--   tshark -X lua_script:tools/wireshark/netfold.lua -r capture.pcap
--   Wireshark: copy or link this file into "Personal Lua Plugins" (Help > About Wireshark > Folders).
--
-- Data ports are chosen per job, so packets are known by their shape: one that is right in every field claims its UDP
-- conversation for us, and the conversation's other packets are shown even where they are malformed. A capture of
-- malformed packets alone needs "Decode As" or the preference netfold.port.
--
-- A packet says neither the shape of its bfp blocks nor the job's number of slots, on which the job agrees when it is
-- admitted: preferences say them. Arithmetic in place of bit operators suits every Lua that Wireshark ever had.

local netfold = Proto("netfold", "Netfold")

local HEADER_BYTES = 16
local TAG_BYTES = 16
local VERSION = 1
local NO_WORKER = 0xffff
local SLOTS_MAX = 65536

local KINDS = { [0] = "contribution", "result", "probe", "missing", "waiting", "await", "complete", "echo",
    "scatter", "copy", "copied", "done" }
local OF_NO_WORKER = { [1] = true, [5] = true, [6] = true, [10] = true, [11] = true }
local MAY_COUNT = { [2] = true, [4] = true, [7] = true } -- a probe: chunks sent after it; the others: between switches
local CONTRIBUTION, RESULT, SCATTER, COPY, COPIED = 0, 1, 8, 9, 10
local CARRIES_ELEMENTS = { [CONTRIBUTION] = true, [RESULT] = true, [SCATTER] = true }
local CARRIES_BYTES = { [COPY] = true, [COPIED] = true } -- of any type, without a format
local HAS_OWNER = { [SCATTER] = true, [COPY] = true } -- where the others have the slot
local FORMATS = { [0] = "none", "fp32", "fp16", "bf16", "int32", "bfp" }
local FP32, FP16, BF16, INT32, BFP = 1, 2, 3, 4, 5
local ELEMENT_BYTES = { [0] = 0, 4, 2, 2, 4 } -- by format; bfp goes by blocks
local TAGGED, LAST, AVERAGE, PARTIAL = 1, 2, 4, 8
local PROBE_MARK, PROBE_BYTES = 0x4e465031, 24 -- of a probe of the path

netfold.prefs.port = Pref.uint("UDP port", 0, "Take every packet of this port for Netfold; 0: go by their shape alone")
netfold.prefs.block = Pref.uint("bfp block", 16, "Elements that share an exponent: a power of two from 8 to 128")
netfold.prefs.mantissa = Pref.uint("bfp mantissa", 7, "Bits of a mantissa without its sign: 2 to 7")
netfold.prefs.slots = Pref.uint("Slots", 0, "The job's slots, a power of two; 0: not known")
netfold.prefs.elements = Pref.uint("Elements shown", 16, "How many elements of a payload to show")

local field = {
    version = ProtoField.uint8("netfold.version", "Version", base.DEC, nil, 0xf0),
    kind = ProtoField.uint8("netfold.kind", "Kind", base.DEC, KINDS, 0x0f),
    format = ProtoField.uint8("netfold.format", "Format", base.DEC, FORMATS, 0xf0),
    flags = ProtoField.uint8("netfold.flags", "Flags", base.HEX, nil, 0x0f),
    tagged = ProtoField.bool("netfold.flags.tagged", "Tagged", 8, nil, TAGGED),
    last = ProtoField.bool("netfold.flags.last", "Last chunk of its tensor", 8, nil, LAST),
    average = ProtoField.bool("netfold.flags.average", "The workers divide the sum by their number", 8, nil, AVERAGE),
    partial = ProtoField.bool("netfold.flags.partial", "A switch's sum, not rounded to the format", 8, nil, PARTIAL),
    job = ProtoField.uint16("netfold.job", "Job"),
    epoch = ProtoField.uint16("netfold.epoch", "Epoch"),
    worker = ProtoField.uint16("netfold.worker", "Worker"),
    slot = ProtoField.uint16("netfold.slot", "Slot"),
    owner = ProtoField.uint16("netfold.owner", "Owner"),
    count = ProtoField.uint16("netfold.count", "Count"),
    chunk = ProtoField.uint32("netfold.chunk", "Chunk"),
    payload = ProtoField.bytes("netfold.payload", "Payload"),
    element = ProtoField.double("netfold.element", "Element"),
    integer = ProtoField.int32("netfold.element.int32", "Element"),
    block = ProtoField.bytes("netfold.block", "Block"),
    exponent = ProtoField.uint8("netfold.block.exponent", "Exponent"),
    mantissa = ProtoField.int16("netfold.block.mantissa", "Mantissa"),
    tag = ProtoField.bytes("netfold.tag", "Tag"),
    nonce = ProtoField.bytes("netfold.path.nonce", "Nonce of the hello"),
    number = ProtoField.uint32("netfold.path.number", "Number"),
}
netfold.fields = field

local function malformed(name, text)
    return ProtoExpert.new("netfold.malformed." .. name, text, expert.group.MALFORMED, expert.severity.ERROR)
end

local problem = {
    short = malformed("short", "Shorter than its header and tag"),
    version = malformed("version", "Not a version of the protocol that is known here"),
    kind = malformed("kind", "No such kind of packet"),
    format = malformed("format", "No format, or not one for this kind of packet"),
    flags = malformed("flags", "Unknown flags"),
    length = malformed("length", "The payload is not as long as its elements"),
    slot = malformed("slot", "Slot and chunk disagree"),
    worker = malformed("worker", "A packet that concerns no single worker names one"),
    exponent = malformed("exponent", "The block's exponent lies between 0 and the mantissa's bits"),
    shape = ProtoExpert.new("netfold.shape", "The preferences' bfp shape does not fit", expert.group.ASSUMPTION,
        expert.severity.NOTE),
}
netfold.experts = problem

local function block_bytes(shape) return 1 + shape.block * (shape.mantissa + 1) / 8 end

local function payload_bytes(format, count, shape)
    if format == BFP then return math.ceil(count / shape.block) * block_bytes(shape) end
    return count * ELEMENT_BYTES[format]
end

-- The shape that makes `count` elements `size_bytes` long: the preferences' if it does, else any that does, else nil.
local function fitting_shape(count, size_bytes)
    local preferred = { block = netfold.prefs.block, mantissa = netfold.prefs.mantissa }
    if payload_bytes(BFP, count, preferred) == size_bytes then return preferred end
    for mantissa = 7, 2, -1 do
        for _, block in ipairs({ 8, 16, 32, 64, 128 }) do
            local shape = { block = block, mantissa = mantissa, assumed = true }
            if payload_bytes(BFP, count, shape) == size_bytes then return shape end
        end
    end
    return nil
end

-- Slot is chunk modulo a power of two: with `slots` of the preferences, or with any.
local function slot_is_right(slot, chunk)
    if netfold.prefs.slots > 0 then return slot == chunk % netfold.prefs.slots end
    local slots = 1
    while slots <= SLOTS_MAX do
        if chunk % slots == slot then return true end
        slots = slots * 2
    end
    return false
end

-- The header as numbers; `tvb` holds at least HEADER_BYTES. Says which part of it is wrong: a key of `problem`, or nil.
local function parse(tvb)
    local first, second = tvb(0, 1):uint(), tvb(1, 1):uint()
    local h = {
        version = math.floor(first / 16), kind = first % 16, format = math.floor(second / 16), flags = second % 16,
        job = tvb(2, 2):uint(), epoch = tvb(4, 2):uint(), worker = tvb(6, 2):uint(), slot = tvb(8, 2):uint(),
        count = tvb(10, 2):uint(), chunk = tvb(12, 4):uint(),
    }
    h.tagged = h.flags % 2 == 1
    h.last = math.floor(h.flags / 2) % 2 == 1
    h.average = math.floor(h.flags / 4) % 2 == 1
    h.partial = h.flags >= PARTIAL
    h.carries_elements = CARRIES_ELEMENTS[h.kind] or false
    h.carries_bytes = CARRIES_BYTES[h.kind] or false
    h.payload_bytes = tvb:reported_len() - HEADER_BYTES - (h.tagged and TAG_BYTES or 0)
    if h.version ~= VERSION then return h, "version" end
    if not KINDS[h.kind] then return h, "kind" end
    if not FORMATS[h.format] or h.carries_elements ~= (h.format ~= 0) then return h, "format" end
    if h.last and not (h.carries_elements or h.carries_bytes) then return h, "flags" end
    if h.average and not h.carries_elements then return h, "flags" end
    if h.partial and h.kind ~= CONTRIBUTION and h.kind ~= SCATTER then return h, "flags" end
    -- How the elements lie in the payload: a partial sum is fp32, or int32.
    h.payload_format = h.partial and h.format ~= INT32 and FP32 or h.format
    if h.payload_bytes < 0 then return h, "short" end
    if h.payload_format == BFP then h.shape = fitting_shape(h.count, h.payload_bytes) end
    if h.carries_bytes then
        local is_empty = h.kind == COPY and h.payload_bytes == 0
        if h.payload_bytes ~= h.count and not is_empty or h.kind == COPIED and h.count == 0 then return h, "length" end
        if h.kind == COPIED and not slot_is_right(h.slot, h.chunk) then return h, "slot" end
        if OF_NO_WORKER[h.kind] and h.worker ~= NO_WORKER then return h, "worker" end
        return h, nil
    end
    local may_count = h.carries_elements or (MAY_COUNT[h.kind] or false) and h.count > 0
    if may_count ~= (h.count > 0) or h.payload_format == BFP and not h.shape then return h, "length" end
    if h.payload_bytes ~= payload_bytes(h.payload_format, h.count, h.shape) then return h, "length" end
    if not HAS_OWNER[h.kind] and not slot_is_right(h.slot, h.chunk) then return h, "slot" end
    if OF_NO_WORKER[h.kind] and h.worker ~= NO_WORKER then return h, "worker" end
    return h, nil
end

-- A 16-bit float with `mantissa_bits`: fp16 (10) or bf16 (7).
local function small_float(bits, mantissa_bits)
    local scale = 2 ^ mantissa_bits
    local exponent_max = 2 ^ (15 - mantissa_bits) - 1
    local bias = math.floor(exponent_max / 2)
    local sign = bits >= 0x8000 and -1 or 1
    local exponent = math.floor(bits / scale) % (exponent_max + 1)
    local mantissa = bits % scale
    if exponent == exponent_max then return mantissa == 0 and sign * math.huge or 0 / 0 end
    if exponent == 0 then return sign * mantissa / scale * 2.0 ^ (1 - bias) end
    return sign * (1 + mantissa / scale) * 2.0 ^ (exponent - bias)
end

local function add_elements(tree, payload, format, count)
    local size_bytes = ELEMENT_BYTES[format]
    for i = 0, math.min(count, netfold.prefs.elements) - 1 do
        if (i + 1) * size_bytes > payload:len() then return end -- the capture is cut short
        local range = payload(i * size_bytes, size_bytes)
        if format == INT32 then
            tree:add_le(field.integer, range)
        elseif format == FP32 then
            tree:add(field.element, range, range:le_float())
        else
            tree:add(field.element, range, small_float(range:le_uint(), format == FP16 and 10 or 7))
        end
    end
end

-- Mantissa i of a block: two's complement of m + 1 bits, packed from the least significant bit up.
local function mantissa_at(block, i, shape)
    local width = shape.mantissa + 1
    local byte, shift = math.floor(i * width / 8), i * width % 8
    local two = block(1 + byte, 1):uint()
    if shift + width > 8 then two = two + 256 * block(2 + byte, 1):uint() end
    local bits = math.floor(two / 2 ^ shift) % 2 ^ width
    if bits >= 2 ^ shape.mantissa then bits = bits - 2 ^ width end
    return bits
end

local function bfp_value(exponent, mantissa, shape)
    if exponent == 255 then return 0 / 0 end
    if exponent == 0 then return 0.0 end
    return mantissa * 2.0 ^ (exponent - 127 - (shape.mantissa - 1))
end

local function add_blocks(tree, payload, count, shape)
    local size_bytes, shown = block_bytes(shape), math.min(count, netfold.prefs.elements)
    for first = 0, count - 1, shape.block do
        local offset = first / shape.block * size_bytes
        if offset + size_bytes > payload:len() then return end -- the capture is cut short
        local block = payload(offset, size_bytes)
        local exponent = block(0, 1):uint()
        local branch = tree:add(field.block, block)
        local item = branch:add(field.exponent, block(0, 1))
        if exponent > 0 and exponent < shape.mantissa then item:add_proto_expert_info(problem.exponent) end
        for i = 0, math.min(shape.block, shown - first) - 1 do
            local mantissa = mantissa_at(block, i, shape)
            branch:add(field.mantissa, block, mantissa)
            branch:add(field.element, block, bfp_value(exponent, mantissa, shape))
        end
    end
end

local function add_header(tree, tvb, kind)
    tree:add(field.version, tvb(0, 1))
    tree:add(field.kind, tvb(0, 1))
    tree:add(field.format, tvb(1, 1))
    local flags = tree:add(field.flags, tvb(1, 1))
    flags:add(field.tagged, tvb(1, 1))
    flags:add(field.last, tvb(1, 1))
    flags:add(field.average, tvb(1, 1))
    flags:add(field.partial, tvb(1, 1))
    tree:add(field.job, tvb(2, 2))
    tree:add(field.epoch, tvb(4, 2))
    local worker = tree:add(field.worker, tvb(6, 2))
    if tvb(6, 2):uint() == NO_WORKER then worker:append_text(" (no single one)") end
    tree:add(HAS_OWNER[kind] and field.owner or field.slot, tvb(8, 2))
    tree:add(field.count, tvb(10, 2))
    tree:add(field.chunk, tvb(12, 4))
end

local function summary(h)
    local text = string.format("%s chunk %d, job %d epoch %d", KINDS[h.kind] or "?", h.chunk, h.job, h.epoch)
    if h.worker ~= NO_WORKER then text = text .. string.format(", worker %d", h.worker) end
    if h.carries_elements then text = text .. string.format(", %d %s", h.count, FORMATS[h.format] or "?") end
    if h.carries_bytes then text = text .. string.format(", %d bytes", h.count) end
    if HAS_OWNER[h.kind] and h.slot ~= NO_WORKER then text = text .. string.format(", owner %d", h.slot) end
    return text .. (h.last and ", last" or "") .. (h.average and ", average" or "") ..
        (h.partial and ", partial" or "") .. (h.tagged and ", tagged" or "")
end

local function is_path_probe(tvb) return tvb:len() >= PROBE_BYTES and tvb(0, 4):uint() == PROBE_MARK end

local function dissect_path_probe(tvb, pinfo, tree)
    local text = string.format("path probe %d, %d bytes", tvb(20, 4):uint(), tvb:reported_len())
    tree:append_text(": " .. text)
    pinfo.cols.info = text
    tree:add(field.nonce, tvb(4, 16))
    tree:add(field.number, tvb(20, 4))
    return tvb:len()
end

function netfold.dissector(tvb, pinfo, root)
    pinfo.cols.protocol = "Netfold"
    local tree = root:add(netfold, tvb())
    if is_path_probe(tvb) then return dissect_path_probe(tvb, pinfo, tree) end
    if tvb:len() < HEADER_BYTES then
        tree:add_proto_expert_info(problem.short)
        pinfo.cols.info = "malformed: short"
        return tvb:len()
    end

    local h, wrong = parse(tvb)
    tree:append_text(": " .. summary(h))
    pinfo.cols.info = (wrong and "malformed (" .. wrong .. "): " or "") .. summary(h)
    add_header(tree, tvb, h.kind)
    if wrong then tree:add_proto_expert_info(problem[wrong]) end

    local captured_bytes = math.min(h.payload_bytes, tvb:len() - HEADER_BYTES)
    if captured_bytes > 0 then
        local payload = tvb(HEADER_BYTES, captured_bytes)
        local branch = tree:add(field.payload, payload)
        if h.shape then
            if h.shape.assumed then
                tree:add_proto_expert_info(problem.shape, string.format("The preferences' bfp shape does not fit; " ..
                    "read as block %d, mantissa %d", h.shape.block, h.shape.mantissa))
            end
            add_blocks(branch, payload, h.count, h.shape)
        elseif h.carries_elements and ELEMENT_BYTES[h.payload_format] then
            add_elements(branch, payload, h.payload_format, h.count)
        end
    end
    local tag_at = HEADER_BYTES + h.payload_bytes
    if h.tagged and h.payload_bytes >= 0 and tvb:len() >= tag_at + TAG_BYTES then
        tree:add(field.tag, tvb(tag_at, TAG_BYTES))
    end
    return tvb:len()
end

netfold:register_heuristic("udp", function(tvb, pinfo, root)
    if tvb:len() < HEADER_BYTES then return false end
    if is_path_probe(tvb) then return netfold.dissector(tvb, pinfo, root) > 0 end
    local h, wrong = parse(tvb)
    if wrong then return false end
    netfold.dissector(tvb, pinfo, root)
    pinfo.conversation = netfold
    return true
end)

local udp_ports = DissectorTable.get("udp.port")
local port = 0
function netfold.prefs_changed()
    if port == netfold.prefs.port then return end
    if port > 0 then udp_ports:remove(port, netfold) end
    port = netfold.prefs.port
    if port > 0 then udp_ports:add(port, netfold) end
end
udp_ports:add_for_decode_as(netfold)
