// replay_buffer: a frame that is not released reads as it was written, any number of times. There are never more frames
// than slots, and a new frame does not take the slot of a kept frame.
module replay_buffer_formal (
  input logic        clk_i,
  input logic        s_tvalid_i,
  input logic [31:0] s_tdata_i,
  input logic        s_tlast_i,
  input logic        release_i,
  input logic [31:0] release_to_i,
  input logic [1:0]  slot_i,
  input logic        read_i,
  input logic [1:0]  read_index_i,
  input logic [31:0] follow_frame_i,  // constants: the beat to follow
  input logic [1:0]  follow_index_i
);

  localparam int unsigned Slots = 4;
  localparam int unsigned PayloadBeats = 3;

  logic        first = 1'b1;
  logic        s_tready, gathers_none, ends_chunk, push, written_q, was_read_q, kept;
  logic [2:0]  head;
  logic [31:0] base, crc, data_q, read_data, was_frame, filling, distance, made, taken;
  logic [1:0]  was_index;
  logic [7:0]  beats, beats_q;
  logic        ends_chunk_q, was_released_q;

  replay_buffer #(.DataWidth(32), .PayloadBeats(PayloadBeats), .Slots(Slots)) u_replay (
    .clk_i, .rst_ni(!first), .s_tvalid_i, .s_tready_o(s_tready), .s_tdata_i, .s_tlast_i,
    .gathers_none_o(gathers_none), .head_o(head), .base_o(base), .release_i, .release_to_i, .slot_i,
    .beats_o(beats), .ends_chunk_o(ends_chunk), .crc_o(crc), .read_i, .read_index_i, .read_data_o(read_data)
  );

  assign push     = s_tvalid_i && s_tready;
  assign made     = 32'(3'(head - base[2:0]));
  assign taken    = made + 32'(u_replay.ended_q);
  assign filling  = base + taken;  // the frame that is gathered
  assign distance = follow_frame_i - base;
  // The followed beat has been written, and its frame is kept or being written.
  assign kept     = written_q && distance <= taken;

  always_ff @(posedge clk_i) begin
    first     <= 1'b0;
    was_frame <= follow_frame_i;
    was_index <= follow_index_i;
    if (first) begin
      written_q      <= 1'b0;
      was_read_q     <= 1'b0;
      was_released_q <= 1'b0;
    end else begin
      if (push && filling == follow_frame_i && u_replay.index_q == follow_index_i) begin
        data_q    <= s_tdata_i;
        written_q <= 1'b1;
      end else if (release_i && follow_frame_i - base < release_to_i - base) begin
        written_q <= 1'b0;
      end
      if (push && filling == follow_frame_i && (s_tlast_i || u_replay.index_q == 2'(PayloadBeats - 1))) begin
        beats_q      <= 8'(u_replay.index_q) + 8'd1;
        ends_chunk_q <= s_tlast_i;
      end
      was_released_q <= release_i;
      was_read_q     <= read_i && slot_i == follow_frame_i[1:0] && read_index_i == follow_index_i && kept &&
                        distance < made;
    end
  end

  always_comb begin
    if (!first) begin
      assume (follow_frame_i == was_frame && follow_index_i == was_index);
      assume (follow_index_i < 2'(PayloadBeats));
      if (release_i) assume (release_to_i - base <= made);
      assert (made <= Slots && taken <= Slots);
      assert (u_replay.write_q == filling[2:0]);
      if (s_tready) assert (taken < Slots);
      if (!s_tready) assert (taken == Slots || was_released_q);  // a released place is seen a cycle late
      assert (u_replay.index_q < 2'(PayloadBeats));
      if (written_q) assert (distance < taken || (distance == taken && follow_index_i < u_replay.index_q));
      if (kept) assert (u_replay.memory[{follow_frame_i[1:0], follow_index_i}] == data_q);
      if (u_replay.ended_q) assert (u_replay.index_q == '0);
      if (u_replay.ended_q && base + made == follow_frame_i && written_q) begin
        assert (u_replay.beats_q == beats_q && u_replay.ended_chunk_q == ends_chunk_q);
      end
      if (was_read_q) assert (read_data == data_q || !kept);
      if (distance < made && written_q) begin
        assert (u_replay.frames[follow_frame_i[1:0]].beats == beats_q);
        assert (u_replay.frames[follow_frame_i[1:0]].ends_chunk == ends_chunk_q);
      end
      if (distance < made && written_q && slot_i == follow_frame_i[1:0]) begin
        assert (beats == beats_q && ends_chunk == ends_chunk_q);
      end
    end
  end

endmodule
