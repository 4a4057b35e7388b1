// Writes a frame that is folded into its port's buffers as it streams by. The header gets the mark of a sum, and the
// lengths of the packet that leaves under it. The gradients are written from their first byte on, so those of all ports
// have the same layout. Of a frame that came again only the header is kept, in a place of its own. The frame's first beat
// comes in the cycle after `start_i`: others read behind.
module frame_splitter
  import switch_pkg::*;
  import aggregation_pkg::*;
#(
  parameter int unsigned HeaderAddressWidth = 13,
  localparam int unsigned PlaceAddressWidth = HeaderAddressWidth - $clog2(HeaderBeats)
) (
  input  logic                           clk_i,
  input  logic                           rst_ni,

  input  logic                           start_i,      // the next frame of the stream is this:
  input  logic [PlaceAddressWidth-1:0]   place_i,
  input  logic                           is_repeat_i,
  input  logic [RepeatBits-1:0]          slot_i,       // ... for its header
  input  meta_t                          meta_i,
  input  logic [7:0]                     last_word_i,  // of a full packet's gradients: its number from 0
  input  logic                           was_short_i,  // the frame is, and perhaps leaves full; or the other way round
  input  logic                           stop_i,       // the frame is not folded after all: no more of it comes
  output logic                           is_busy_o,
  // From the cycle after `start_i`: the gradients of this place are on their way, and not a word of them is written yet.
  output logic                           is_awaited_o,
  output logic [PlaceAddressWidth-1:0]   awaited_place_o,

  input  logic                           s_valid_i,
  input  beat_t                          s_beat_i,

  output logic                           header_write_o,
  output logic                           repeat_write_o,
  output logic [RepeatBits+3:0]          repeat_address_o,
  output logic [HeaderAddressWidth-1:0]  header_address_o,
  output logic [63:0]                    header_data_o,
  output logic                           payload_write_o,
  output logic [PlaceAddressWidth+6:0]   payload_address_o,
  output logic [63:0]                    payload_data_o
);

  localparam logic [7:0] BeatMax = 8'hff;

  logic                         is_busy_q, is_repeat_q, is_waiting_q;
  logic [PlaceAddressWidth-1:0] place_q;
  logic [RepeatBits-1:0]        slot_q;
  kind_e                        kind_q;
  logic                         is_v2_q, has_tag_q;
  logic [7:0]                   last_word_q;
  logic [7:0]                   beat_q, payload_beat;
  logic [63:16]                 before_q;
  logic [63:0]                  marked, written;
  logic                         shrinks, shrinks_q;
  logic [15:0]                  more_q;  // bytes that it has when it leaves, or one less than those
  logic [3:0]                   full_beats;
  logic                         in_header, is_six;

  logic unused_beat;
  assign unused_beat = ^{s_beat_i.error, s_beat_i.extra};

  assign shrinks = meta_i.is_short && !was_short_i;

  assign is_busy_o       = is_busy_q;
  assign is_awaited_o    = is_waiting_q;
  assign awaited_place_o = place_q;
  assign full_beats      = header_beats(kind_q, is_v2_q, has_tag_q);
  assign is_six          = header_ends_at_six(kind_q, is_v2_q, has_tag_q);

  // The marks (PROTOCOL.md): flow label 0x04e46 in bytes 15 to 17, or in v2 0x4e in the seven bits before the PSN, and
  // no UDP checksum; the highest bit of immediate data, a flag of the aggregation header; a tag is four bytes.
  always_comb begin
    marked = s_beat_i.data;
    unique case ({is_v2_q, has_tag_q})
      2'b00: begin
        if (beat_q == 8'd1) marked[59:56] = 4'h0;
        if (beat_q == 8'd2) marked[15:0] = 16'h464e;
        if (beat_q == 8'd8 && kind_q == KindImmediate) marked[23] = 1'b1;
        if (beat_q == 8'd10 && kind_q == KindFirst) marked[41] = 1'b1;
      end
      2'b01: begin
        if (beat_q == 8'd2) {marked[47:32], marked[27:24]} = {16'h464e, 4'h0};
        if (beat_q == 8'd8 && kind_q == KindImmediate) marked[55] = 1'b1;
        if (beat_q == 8'd11 && kind_q == KindFirst) marked[9] = 1'b1;
      end
      2'b10: begin
        if (beat_q == 8'd5) marked[15:0] = '0;
        if (beat_q == 8'd6) marked[22:16] = 7'h4e;
        if (beat_q == 8'd6 && kind_q == KindImmediate) marked[55] = 1'b1;
        if (beat_q == 8'd9 && kind_q == KindFirst) marked[9] = 1'b1;
      end
      default: begin
        if (beat_q == 8'd5) marked[47:32] = '0;
        if (beat_q == 8'd6) marked[54:48] = 7'h4e;
        if (beat_q == 8'd7 && kind_q == KindImmediate) marked[23] = 1'b1;
        if (beat_q == 8'd9 && kind_q == KindFirst) marked[41] = 1'b1;
      end
    endcase
  end

  // The lengths of the GRH, or of IPv4 and UDP, and IPv4's checksum. A checksum is the complement of a sum in which the
  // carry comes back: so it changes as the length does. (RFC 1624.)
  logic        at_length, at_check;
  logic [1:0]  pair;           // of bytes in the beat
  logic [15:0] came, field;
  logic [16:0] sum;
  logic [15:0] sum_and_one, changed;

  always_comb begin
    at_check  = is_v2_q && beat_q[3:0] == 4'd3;
    at_length = beat_q[3:0] == 4'd2 || (is_v2_q && beat_q[3:0] == (has_tag_q ? 4'd5 : 4'd4));
    if (is_v2_q) pair = beat_q[2] ? (has_tag_q ? 2'd1 : 2'd3) : {has_tag_q, 1'b0};
    else         pair = {has_tag_q, 1'b1};
  end

  assign came        = number_of_2(s_beat_i.data[{pair, 4'd0} +: 16]);  // where no mark is
  assign field       = at_check ? ~came : came;
  assign sum         = {1'b0, field} + {1'b0, more_q};
  assign sum_and_one = field - ~more_q;
  assign changed     = (at_check ? sum[16] : shrinks_q) ? sum_and_one : sum[15:0];

  always_comb begin
    written = marked;
    if (at_length || at_check) written[{pair, 4'd0} +: 16] = number_of_2(at_check ? ~changed : changed);
  end

  // While it waits for the frame, what the builder must know is written behind the header's place.
  assign in_header        = is_busy_q && s_valid_i && beat_q <= 8'(full_beats);
  assign header_write_o   = start_i ? !is_repeat_i : in_header && !is_repeat_q;
  assign repeat_write_o   = start_i ? is_repeat_i : in_header && is_repeat_q;
  assign header_address_o = start_i ? {place_i, MetaBeat} : {place_q, beat_q[3:0]};
  assign repeat_address_o = start_i ? {slot_i, MetaBeat} : {slot_q, beat_q[3:0]};
  assign header_data_o    = start_i ? 64'(meta_i) : written;

  assign payload_beat      = beat_q - 8'(full_beats) - 8'd1;
  assign payload_write_o   = is_busy_q && s_valid_i && !is_repeat_q && beat_q > 8'(full_beats) &&
                             payload_beat <= 8'(last_word_q >> 1);
  assign payload_address_o = {place_q, payload_beat[6:0]};
  assign payload_data_o    = is_six ? {s_beat_i.data[47:0], before_q[63:48]} : {s_beat_i.data[15:0], before_q[63:16]};

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      is_busy_q    <= 1'b0;
      is_waiting_q <= 1'b0;
    end else if (start_i) begin
      is_busy_q    <= 1'b1;
      is_waiting_q <= !is_repeat_i;
    end else begin
      if ((s_valid_i && s_beat_i.last) || stop_i) is_busy_q <= 1'b0;
      if (payload_write_o || stop_i) is_waiting_q <= 1'b0;
    end
  end

  always_ff @(posedge clk_i) begin
    if (start_i) begin
      place_q     <= place_i;
      slot_q      <= slot_i;
      is_repeat_q <= is_repeat_i;
      kind_q      <= meta_i.kind;
      is_v2_q     <= meta_i.is_v2;
      has_tag_q   <= meta_i.has_tag;
      last_word_q <= last_word_i;
      shrinks_q   <= shrinks;
      more_q      <= was_short_i == meta_i.is_short ? '0 : {6'd0, last_word_i, 2'd0} ^ {16{shrinks}};
      beat_q      <= '0;
    end else if (s_valid_i && beat_q != BeatMax) begin
      beat_q <= beat_q + 8'd1;
    end
    if (s_valid_i) before_q <= s_beat_i.data[63:16];
  end

endmodule
