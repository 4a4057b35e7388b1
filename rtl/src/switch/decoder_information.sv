// Decoder Information: what a frame that may be folded says of itself, collected as its beats go into the Proc. FIFO,
// together with the check of its ICRC and its lengths. It is whole in the cycle after the frame's last beat, and stays
// until the next frame. Behind its header, it is told when the frame's end is near, if the frame is as long as it says.
module decoder_information
  import switch_pkg::*;
#(
  parameter int unsigned NearBeats = 20
) (
  input  logic        clk_i,
  input  logic        rst_ni,
  input  logic        valid_i,
  input  beat_t       beat_i,
  input  logic        is_v2_i,    // with the first beat
  input  logic        has_tag_i,  // with the first beat
  output frame_info_t info_o,
  output logic        is_near_o,  // so many beats are left at most,
  output logic        is_last_o   // or three
);

  localparam int unsigned IndexWidth = $clog2(FrameBeatsMax + 1);
  localparam logic [3:0]  IpVersion  = 4'd6;
  localparam logic [7:0]  NextHeader = 8'h1b;
  localparam logic [5:0]  Least      = 6'd16;  // BTH and ICRC
  localparam logic [5:0]  LeastV2    = 6'd44;  // and IPv4 and UDP
  localparam int unsigned LastBeats  = 3;

  logic [IndexWidth-1:0] index_q, plain_q, end_q;  // of the beat; as in v1 without a tag; where the ICRC ends
  logic [IndexWidth-1:0] near_q, last_q;           // where so many beats are left
  logic                  is_v2, has_tag, ends_at_six_q, ends_q, ended_q, is_whole, is_contradictory_q, is_right;
  logic                  has_bad_block, has_header;
  logic [31:0]           high_q;
  logic [63:0]           data;
  logic [15:0]           length;
  logic [11:0]           length_q, payload;
  logic [5:0]            extensions, others_q;     // bytes: RETH or immediate data; all but payload
  logic [31:0]           unused_icrc;
  frame_info_t           info_q;

  assign is_v2   = info_q.is_v2;  // from the second beat on
  assign has_tag = info_q.has_tag;
  // The same fields lie four bytes later with a VLAN tag, and twelve earlier in v2: they are read in v1's places. The
  // IPv4 header lies behind v1's 26th byte then.
  assign data   = is_v2 ^ has_tag ? {beat_i.data[31:0], high_q} : beat_i.data;
  assign length = number_of_2(is_v2 ? data[47:32] : data[31:16]);

  // Behind these beats all is known that an early question needs. Write Firsts are longer.
  assign has_header = index_q > IndexWidth'(9);
  assign is_whole   = ended_q || (ends_q && beat_i.extra >= (ends_at_six_q ? 3'd5 : 3'd1));
  assign payload    = length_q - 12'(others_q);
  assign extensions = data[55:48] == WriteFirst ? 6'd16 : data[55:48] == WriteLastImmediate ? 6'd4 : 6'd0;

  icrc #(.Makes(1'b0)) u_icrc (
    .clk_i,
    .rst_ni,
    .valid_i,
    .first_i      (index_q == '0),
    .is_v2_i      (is_v2),
    .has_tag_i    (has_tag),
    .data_i       (beat_i.data),
    .ends_i       (ends_q),
    .ends_at_six_i(ends_at_six_q),
    .icrc_o       (unused_icrc),
    .is_right_o   (is_right)
  );

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      index_q   <= '0;
      plain_q   <= '0;
      ends_q    <= 1'b0;
      ended_q   <= 1'b0;
      is_near_o <= 1'b0;
      is_last_o <= 1'b0;
    end else if (valid_i) begin
      index_q <= beat_i.last ? '0 : index_q + 1'b1;
      // With a tag, the second beat counts as the first; in v2 as the third.
      if (beat_i.last)         plain_q <= '0;
      else if (index_q != '0)  plain_q <= plain_q + 1'b1;
      else                     plain_q <= is_v2_i ? IndexWidth'(2) : IndexWidth'(!has_tag_i);
      // Of the next beat. Where the ICRC ends is known from the fourth beat on, and it ends behind the fifth.
      ends_q  <= !beat_i.last && index_q + 1'b1 == end_q && index_q > IndexWidth'(3);
      ended_q <= !beat_i.last && (ended_q || ends_q);
      is_near_o <= !beat_i.last && (is_near_o || (has_header && index_q == near_q));
      is_last_o <= !beat_i.last && (is_last_o || (has_header && index_q == last_q));
    end
  end

  always_ff @(posedge clk_i) begin
    if (valid_i) begin
      high_q               <= beat_i.data[63:32];
      info_q.icrc_is_right <= 1'b0;  // told below
      info_q.has_bad_block <= 1'b0;
      if (index_q == IndexWidth'(0)) begin
        info_q.is_v2                 <= is_v2_i;
        info_q.has_tag               <= has_tag_i;
        info_q.addresses.to          <= address_of(beat_i.data[47:0]);
        info_q.addresses.from[47:32] <= number_of_2(beat_i.data[63:48]);
      end
      if (index_q == IndexWidth'(1)) info_q.addresses.from[31:0] <= number_of_4(beat_i.data[31:0]);
      case (plain_q)
        IndexWidth'(1): is_contradictory_q <= data[55:52] != IpVersion;
        IndexWidth'(2): info_q.gids[15:0] <= is_v2 ? '0 : data[63:48];
        IndexWidth'(3): info_q.gids[79:16] <= is_v2 ? '0 : data;
        IndexWidth'(4): info_q.gids[143:80] <= is_v2 ? {data[63:48], 48'd0} : data;
        IndexWidth'(5): info_q.gids[207:144] <= is_v2 ? {16'd0, data[47:0]} : data;
        IndexWidth'(6): begin
          info_q.gids[255:208] <= is_v2 ? '0 : data[47:0];
          info_q.opcode        <= data[55:48];
          info_q.is_first      <= data[55:48] == WriteFirst;
          others_q             <= (is_v2 ? LeastV2 : Least) + extensions + 6'(data[61:60]);
          is_contradictory_q   <= is_contradictory_q || data[59:56] != '0;  // the version of the BTH
        end
        IndexWidth'(7): begin
          info_q.queue_pair    <= {data[31:24], data[39:32], data[47:40]};
          info_q.psn[23:16]    <= data[63:56];
          info_q.payload_bytes <= payload[10:0];
          is_contradictory_q   <= is_contradictory_q || payload[11];  // shorter than its headers
        end
        IndexWidth'(8): info_q.psn[15:0] <= number_of_2(data[15:0]);
        IndexWidth'(9): info_q.reth_length[31:16] <= number_of_2(data[63:48]);
        IndexWidth'(10): begin
          info_q.reth_length[15:0]   <= number_of_2(data[15:0]);
          info_q.aggregation.version <= data[39:36];
          info_q.aggregation.format  <= data[35:32];
          info_q.aggregation.flags   <= data[47:40];
          info_q.aggregation.job     <= number_of_2(data[63:48]);
        end
        IndexWidth'(11): begin
          info_q.aggregation.epoch          <= number_of_2(data[15:0]);
          info_q.aggregation.rank           <= number_of_2(data[31:16]);
          info_q.aggregation.block          <= data[39:32];
          info_q.aggregation.mantissa       <= data[47:40];
          info_q.aggregation.message[31:16] <= number_of_2(data[63:48]);
        end
        IndexWidth'(12): begin
          info_q.aggregation.message[15:0] <= number_of_2(data[15:0]);
          info_q.aggregation.length_bytes  <= number_of_4(data[47:16]);
        end
        default: ;
      endcase
      if (plain_q == (is_v2 ? IndexWidth'(3) : IndexWidth'(2))) begin
        length_q           <= length[11:0];
        ends_at_six_q      <= length[2] == has_tag;
        end_q              <= IndexWidth'((length + (is_v2 ? 16'd13 : 16'd53) + {13'd0, has_tag, 2'd0}) >> 3);
        is_contradictory_q <= (!is_v2 && (is_contradictory_q || data[39:32] != NextHeader)) || length[15:12] != '0;
      end
      if (plain_q == (is_v2 ? IndexWidth'(4) : IndexWidth'(3))) begin
        is_contradictory_q <= is_contradictory_q || length_q[1:0] != '0 || length_q > 12'(FrameBytesMax);
      end
      if (index_q == IndexWidth'(4)) begin
        near_q <= end_q - IndexWidth'(NearBeats);
        last_q <= end_q - IndexWidth'(LastBeats);
      end
      if (beat_i.last) info_q.is_malformed <= is_contradictory_q || beat_i.error || !is_whole;
    end
  end

  bfp_scan u_blocks (
    .clk_i,
    .rst_ni,
    .valid_i,
    .last_i         (beat_i.last),
    .index_i        (8'(plain_q)),
    .data_i         (data),
    .opcode_i       (info_q.opcode),
    .payload_bytes_i(info_q.payload_bytes),
    .is_malformed_o (has_bad_block)
  );

  always_comb begin
    info_o               = info_q;
    info_o.has_bad_block = has_bad_block;
    info_o.icrc_is_right = is_right;
  end

endmodule
