// The gearbox of block floating point, from the wire: full beats become the pieces of blocks that bfp_decoder takes. A
// command says how many beats of numbers a chunk holds; the rest of the last beat on the wire is dropped. A chunk that
// ends on the wire before or after its last number is reported: the two ends mean different things.
//
// A beat is kept while pieces are cut from it. A piece has a byte of each place in a word of the beat, an exponent
// besides: the words that these lie in are picked, and the piece is turned until it begins with its first byte. A piece
// may go on in the first word of the next beat, which then takes the place of this one. Where that word holds all that
// the chunk still needs, its beat makes room at once, so that the next chunk's does not wait.
module bfp_unpacker #(
  parameter int unsigned Lanes    = 16,
  parameter int unsigned Block    = 16,
  parameter int unsigned Mantissa = 7,
  parameter int unsigned CountWidth = 16,
  localparam int unsigned BlocksPerBeat = Lanes > Block ? Lanes / Block : 1,
  localparam int unsigned BeatsPerBlock = Block > Lanes ? Block / Lanes : 1
) (
  input  logic                          clk_i,
  input  logic                          rst_ni,

  input  logic                          command_valid_i,
  output logic                          command_ready_o,
  input  logic [CountWidth-1:0]         command_beats_i,  // of numbers, at least one

  input  logic                          s_tvalid_i,
  output logic                          s_tready_o,
  input  logic [32*Lanes-1:0]           s_tdata_i,
  input  logic                          s_tlast_i,

  output logic                          m_tvalid_o,
  input  logic                          m_tready_i,
  output logic [8*BlocksPerBeat-1:0]    m_exponent_o,
  output logic [(Mantissa+1)*Lanes-1:0] m_mantissa_o,
  output logic                          m_tlast_o,

  output logic                          mismatch_o
);

  localparam int unsigned BeatBytes  = 4 * Lanes;
  localparam int unsigned BlockBytes = 1 + (Mantissa + 1) * Lanes / BlocksPerBeat / 8;  // of a beat's part of a block
  localparam int unsigned RestBytes  = BlocksPerBeat * BlockBytes - 1;  // of a piece, behind its first
  localparam int unsigned PlaceWidth = $clog2(RestBytes);
  localparam int unsigned WordBytes  = 1 << PlaceWidth;
  localparam int unsigned Words      = BeatBytes / WordBytes;
  localparam int unsigned WordWidth  = $clog2(Words);
  localparam int unsigned AtWidth    = $clog2(BeatBytes);
  localparam int unsigned IndexWidth = BeatsPerBlock > 1 ? $clog2(BeatsPerBlock) : 1;

  typedef logic [WordBytes-1:0][7:0] word_t;

  word_t [Words-1:0]     beat_q;
  word_t                 ahead_q;         // the first word of the next beat
  logic                  kept_q, last_q;  // there is a beat, the chunk's last
  logic                  ahead_valid_q;
  logic                  gone_q;          // the next beat, all but its first word
  logic [AtWidth-1:0]    at_q;            // the byte of the beat where the next piece begins
  logic [CountWidth-1:0] left_q;          // beats of numbers still to give
  logic                  is_left_q, is_one_q, is_two_q;  // they are not none, one, two
  logic [IndexWidth-1:0] index_q, next_index;  // of the beat in its block
  logic [AtWidth:0]      end_, next_end;  // of the piece and of the one behind it
  logic                  has_first, next_has_first, goes_on, uses_up, next_goes_on, has_next, cut, cut_last;
  logic                  take, drop, out_ready;

  function automatic logic [AtWidth:0] behind(logic [AtWidth-1:0] at, logic first);
    return (AtWidth + 1)'(at) + (AtWidth + 1)'(RestBytes) + (AtWidth + 1)'(first);
  endfunction

  assign has_first = BeatsPerBlock == 1 || index_q == '0;
  assign end_      = behind(at_q, has_first);
  assign uses_up   = end_[AtWidth];
  assign goes_on   = uses_up && end_[AtWidth-1:0] != '0;
  assign cut       = kept_q && is_left_q && out_ready && (!goes_on || (has_next && !last_q));
  assign has_next  = gone_q || (ahead_valid_q && s_tvalid_i);
  assign cut_last  = cut && is_one_q;

  assign next_index     = BeatsPerBlock == 1 || index_q == IndexWidth'(BeatsPerBlock - 1) ? '0 : index_q + 1'b1;
  assign next_has_first = BeatsPerBlock == 1 || next_index == '0;
  assign next_end       = behind(end_[AtWidth-1:0], next_has_first);
  assign next_goes_on   = !uses_up && next_end[AtWidth] && next_end[AtWidth-1:0] != '0;

  // The next beat takes the place of this one, or is not needed any more.
  assign drop            = kept_q && !last_q && !gone_q && is_two_q && cut && next_goes_on;
  assign s_tready_o      = !kept_q || (cut && uses_up) || cut_last || drop;
  assign take            = s_tvalid_i && s_tready_o;
  assign command_ready_o = !is_left_q || cut_last;

  // Too short: the end is here, and the next piece is not. Too long: all is given before the end came.
  assign mismatch_o = (kept_q && last_q && is_left_q && goes_on) || (cut && !cut_last && uses_up && last_q) ||
                      (cut_last && !(goes_on ? gone_q || s_tlast_i : last_q)) || (drop && take && !s_tlast_i);

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      kept_q        <= 1'b0;
      ahead_valid_q <= 1'b0;
      gone_q        <= 1'b0;
      at_q          <= '0;
      left_q        <= '0;
      is_left_q     <= 1'b0;
      is_one_q      <= 1'b0;
      is_two_q      <= 1'b0;
      index_q       <= '0;
    end else begin
      if (s_tready_o && !drop) kept_q <= s_tvalid_i && !(cut_last && goes_on && !gone_q);
      gone_q        <= (drop && take) || (gone_q && !cut_last);
      ahead_valid_q <= (ahead_valid_q || (s_tvalid_i && !gone_q)) && !take;
      if (cut) begin
        at_q    <= cut_last ? '0 : end_[AtWidth-1:0];
        index_q <= next_index;
      end
      if (command_valid_i && command_ready_o) begin
        left_q    <= command_beats_i;
        is_left_q <= command_beats_i != '0;
        is_one_q  <= command_beats_i == CountWidth'(1);
        is_two_q  <= command_beats_i == CountWidth'(2);
      end else if (cut) begin
        left_q    <= left_q - 1'b1;
        is_left_q <= !is_one_q;
        is_one_q  <= is_two_q;
        is_two_q  <= left_q == CountWidth'(3);
      end
    end
  end

  always_ff @(posedge clk_i) begin
    if (take && !drop) begin
      beat_q <= s_tdata_i;
      last_q <= s_tlast_i;
    end
    if (s_tvalid_i && !gone_q) ahead_q <= s_tdata_i[8*WordBytes-1:0];
  end

  // --- A piece: its first byte, and all behind it ---
  logic [WordWidth-1:0]       word;
  logic [PlaceWidth:0]        rest_place;
  word_t                      picked;
  logic [8*BeatBytes-1:0]     beat;
  logic [8*RestBytes-1:0]     rest;
  logic [8*(RestBytes+1)-1:0] piece;

  assign word       = at_q[AtWidth-1:PlaceWidth];
  assign rest_place = (PlaceWidth + 1)'(at_q[PlaceWidth-1:0]) + (PlaceWidth + 1)'(has_first);
  assign beat       = beat_q;

  always_comb begin
    for (int unsigned lane = 0; lane < WordBytes; lane++) begin
      if ((PlaceWidth + 1)'(lane) >= rest_place) picked[lane] = beat_q[word][lane];
      else if (word == '1) picked[lane] = ahead_q[lane];
      else picked[lane] = beat_q[word + 1'b1][lane];
    end
  end
  assign rest  = (8*RestBytes)'({2{picked}} >> {rest_place[PlaceWidth-1:0], 3'd0});
  assign piece = {rest, beat[{at_q, 3'd0} +: 8]};

  logic                          out_valid_q, out_last_q;
  logic [8*BlocksPerBeat-1:0]    exponent_q;
  logic [(Mantissa+1)*Lanes-1:0] mantissa_q;

  assign out_ready = m_tready_i || !out_valid_q;

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      out_valid_q <= 1'b0;
    end else if (out_ready) begin
      out_valid_q <= cut;
    end
  end

  for (genvar block = 0; block < BlocksPerBeat; block++) begin : gen_block
    always_ff @(posedge clk_i) begin
      if (cut && has_first) exponent_q[8*block +: 8] <= piece[8*BlockBytes*block +: 8];
      if (cut) begin
        mantissa_q[8*(BlockBytes-1)*block +: 8*(BlockBytes-1)] <= piece[8*BlockBytes*block+8 +: 8*(BlockBytes-1)];
      end
    end
  end

  always_ff @(posedge clk_i) begin
    if (cut) out_last_q <= cut_last;
  end

  assign m_tvalid_o   = out_valid_q;
  assign m_exponent_o = exponent_q;
  assign m_mantissa_o = mantissa_q;
  assign m_tlast_o    = out_last_q;

endmodule
