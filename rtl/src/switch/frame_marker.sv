// Reads a frame's headers on its way into the Port FIFO and marks the beats that show something about it (mark_e). So
// DEC_FSM, behind the FIFO, compares no types, opcodes and lengths: the comparisons with the decisions after them were
// the longest paths of the switch. Marks behind one that decides mean nothing.
//
// A frame of RoCE v2 is UDP to RoCE's port, whose length agrees with IPv4's; no fragment, and without IPv4 options. Every
// other IPv4 packet is marked as not folded. The checksums of IPv4 and UDP are not read: all else of these headers that
// matters is covered by the ICRC, which is checked.
module frame_marker
  import switch_pkg::*;
(
  input  logic   clk_i,
  input  logic   rst_ni,

  input  logic   take_i,  // the beat is taken
  input  beat_t  beat_i,
  input  types_t types_i,
  output mark_e  mark_o
);

  localparam logic [15:0] Magic       = 16'h4e46;
  localparam logic [3:0]  Version     = 4'd1;
  localparam logic [15:0] LengthMin   = 16'd52;  // BTH, RETH, aggregation header, ICRC
  localparam logic [15:0] LengthMinV2 = 16'd60;  // with UDP
  localparam logic [15:0] IpBytes     = 16'd20;
  localparam logic [7:0]  IpVersion   = 8'h45;   // with five words: no options
  localparam logic [7:0]  IpUdp       = 8'd17;
  localparam logic [15:0] IpFragment  = 16'h3fff;

  logic [3:0]  index_q;  // of the beat, as in v1 without a tag: a tagged frame's second beat counts as its first again
  logic        has_tag_q, is_v2_q, is_plain_q, is_whole_q, is_long_q;
  logic [31:0] high_q;
  logic [63:0] data;
  logic [15:0] fragment, length_q;
  logic [7:0]  protocol, opcode;
  mark_e       of_type, of_inner, of_opcode;
  logic        at_type, at_inner, at_udp, at_opcode, at_port, at_header;
  logic        is_ours_q, is_roce_v2_q;
  logic        unused_parts;

  // The same fields lie four bytes later with a VLAN tag, and twelve earlier in v2: they are read in v1's places.
  assign data  = is_v2_q ^ has_tag_q ? {beat_i.data[31:0], high_q} : beat_i.data;

  assign protocol     = has_tag_q ? beat_i.data[31:24] : beat_i.data[63:56];
  assign fragment     = number_of_2(has_tag_q ? beat_i.data[15:0] : beat_i.data[47:32]);
  assign opcode       = data[55:48];
  assign unused_parts = ^{beat_i.error, data[63:62], data[59:56], data[47:40], data[35:32]};

  // Of a tagged frame, the type comes a beat later.
  assign at_type   = index_q == 4'd1 && !has_tag_q;
  assign at_inner  = index_q == 4'd1 && has_tag_q;
  assign at_udp    = index_q == (has_tag_q ? 4'd4 : 4'd3) && is_v2_q;
  assign at_opcode = index_q == 4'd6;
  assign at_port   = index_q == 4'd7 && is_v2_q;
  assign at_header = index_q == 4'd11;  // behind magic and version

  always_comb begin
    of_type = MarkNone;
    if (types_i.is_tag[1])        of_type = beat_i.last ? MarkRunt : MarkTag;
    else if (types_i.is_ip[1])    of_type = MarkIp;
    else if (!types_i.is_roce[1]) of_type = MarkOther;
    of_inner = MarkNone;
    if (beat_i.last && beat_i.extra < (types_i.is_tag[0] ? 3'd5 : 3'd1)) of_inner = MarkRunt;
    else if (&types_i.is_tag)                                            of_inner = MarkOvertagged;
    else if (types_i.is_ip[0])                                           of_inner = MarkIp;
    else if (!types_i.is_roce[0])                                        of_inner = MarkOther;
    of_opcode = MarkNone;
    if (opcode inside {WriteMiddle, WriteLast, WriteLastImmediate}) of_opcode = MarkLater;
    else if (opcode != WriteFirst)                                  of_opcode = MarkOther;
  end

  assign mark_o = mark_e'((at_type ? of_type : MarkNone) | (at_inner ? of_inner : MarkNone) |
                          (at_opcode ? of_opcode : MarkNone) |
                          ((at_udp && protocol != IpUdp) || (at_port && !is_roce_v2_q) ? MarkOther : MarkNone) |
                          (at_header ? (is_ours_q && !beat_i.last ? MarkFirst : MarkOther) : MarkNone));

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      index_q   <= '0;
      has_tag_q <= 1'b0;
      is_v2_q   <= 1'b0;
    end else if (take_i) begin
      if (beat_i.last) begin
        index_q   <= '0;
        has_tag_q <= 1'b0;
        is_v2_q   <= 1'b0;
      end else begin
        if (at_type && types_i.is_tag[1])       index_q <= 4'd1;
        else if (at_type && types_i.is_ip[1])   index_q <= 4'd3;
        else if (at_inner && types_i.is_ip[0])  index_q <= 4'd4;
        else if (index_q != '1)                 index_q <= index_q + 1'b1;
        if (at_type) has_tag_q <= types_i.is_tag[1];
        if (at_type || at_inner) is_v2_q <= types_i.is_ip[has_tag_q ? 0 : 1];
      end
    end
  end

  // The length that the network header says of what is behind the GRH, or behind IPv4.
  always_ff @(posedge clk_i) begin
    if (take_i) begin
      high_q     <= beat_i.data[63:32];
      is_plain_q <= (has_tag_q ? beat_i.data[23:16] : beat_i.data[55:48]) == IpVersion;  // of the beat with the type
      if (at_inner)                                 length_q <= number_of_2(beat_i.data[47:32]) - IpBytes;
      if (index_q == 4'd3 && is_v2_q && !has_tag_q) length_q <= number_of_2(beat_i.data[15:0]) - IpBytes;
      if (index_q == 4'd2)                          length_q <= number_of_2(data[31:16]);
      is_ours_q  <= number_of_2(data[31:16]) == Magic && data[39:36] == Version && is_long_q;
      if (at_udp) is_whole_q <= is_plain_q && (fragment & IpFragment) == '0;
      if (at_opcode) begin
        is_roce_v2_q <= is_whole_q && number_of_2(data[15:0]) == RocePort && number_of_2(data[31:16]) == length_q;
        is_long_q <= length_q > (is_v2_q ? LengthMinV2 : LengthMin) ||
                     (length_q == (is_v2_q ? LengthMinV2 : LengthMin) && data[61:60] == '0);
      end
    end
  end

endmodule
