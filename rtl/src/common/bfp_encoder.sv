// Block floating point, from numbers to pieces: a beat of `Lanes` FP32 numbers becomes the exponents and mantissas that
// it adds to the blocks on the wire. The number format is that of core/numbers/reference.cc, bit for bit.
//
// Two stages find the largest exponent of a beat. Where a block is several beats, these wait in a queue until its last
// one has been seen. Two more stages shift and round. With a block a beat the latency is four cycles.
//
// A chunk is whole blocks: the sender pads the last one with zeros.
module bfp_encoder #(
  parameter int unsigned Lanes    = 16,
  parameter int unsigned Block    = 16,
  parameter int unsigned Mantissa = 7,
  localparam int unsigned BlocksPerBeat = Lanes > Block ? Lanes / Block : 1,
  localparam int unsigned BeatsPerBlock = Block > Lanes ? Block / Lanes : 1
) (
  input  logic                          clk_i,
  input  logic                          rst_ni,

  input  logic                          s_tvalid_i,
  output logic                          s_tready_o,
  input  logic [32*Lanes-1:0]           s_tdata_i,
  input  logic                          s_tlast_i,   // of the chunk

  output logic                          m_tvalid_o,
  input  logic                          m_tready_i,
  output logic [8*BlocksPerBeat-1:0]    m_exponent_o,
  output logic [(Mantissa+1)*Lanes-1:0] m_mantissa_o,
  output logic                          m_first_o,   // of a block
  output logic                          m_tlast_o
);

  localparam int unsigned Q     = Mantissa + 1;           // bits of a mantissa on the wire
  localparam int unsigned Group = 4;                      // exponents that one stage compares
  localparam int unsigned Groups = (Lanes + Group - 1) / Group;
  localparam int unsigned LanesPerBlock  = Lanes / BlocksPerBeat;
  localparam int unsigned GroupsPerBlock = Groups / BlocksPerBeat;
  localparam int unsigned Compared       = GroupsPerBlock > Group ? GroupsPerBlock : Group;

  // --- 1: the largest exponent of each four lanes; 2: of the lanes of a block ---
  logic                       en, valid1_q, valid2_q, last1_q, last2_q;
  logic [32*Lanes-1:0]        data1_q, data2_q;
  logic [8*Groups-1:0]        group_max, group_max1_q;
  logic [8*BlocksPerBeat-1:0] beat_max, beat_max2_q;

  // Each exponent is compared with each other at the same time; the largest shows itself. Of equal ones, the first.
  function automatic logic [7:0] largest_of(logic [Compared-1:0][7:0] exponents);
    largest_of = '0;
    for (int unsigned i = 0; i < Compared; i++) begin
      logic is_largest;
      is_largest = 1'b1;
      for (int unsigned j = 0; j < Compared; j++) begin
        if (j < i ? exponents[j] >= exponents[i] : exponents[j] > exponents[i]) is_largest = 1'b0;
      end
      largest_of |= is_largest ? exponents[i] : '0;
    end
  endfunction

  for (genvar group = 0; group < Groups; group++) begin : gen_group
    logic [Group-1:0][7:0] exponents;

    for (genvar i = 0; i < Group; i++) begin : gen_exponent
      localparam int unsigned Lane = Group * group + i;
      assign exponents[i] = Lane < Lanes ? s_tdata_i[(32*Lane+23)%(32*Lanes) +: 8] : '0;
    end
    assign group_max[8*group +: 8] = largest_of((8*Compared)'(exponents));
  end

  for (genvar block = 0; block < BlocksPerBeat; block++) begin : gen_beat_max
    assign beat_max[8*block +: 8] = largest_of((8*Compared)'(group_max1_q[8*GroupsPerBlock*block +: 8*GroupsPerBlock]));
  end

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      valid1_q <= 1'b0;
      valid2_q <= 1'b0;
    end else if (en) begin
      valid1_q <= s_tvalid_i;
      valid2_q <= valid1_q;
    end
  end

  always_ff @(posedge clk_i) begin
    if (en) begin
      data1_q      <= s_tdata_i;
      last1_q      <= s_tlast_i;
      group_max1_q <= group_max;
      data2_q      <= data1_q;
      last2_q      <= last1_q;
      beat_max2_q  <= beat_max;
    end
  end

  assign s_tready_o = en;

  // --- Beats with the exponents of their whole blocks ---
  logic                       whole_valid, whole_last, whole_first, round_en;
  logic [32*Lanes-1:0]        whole_data;
  logic [8*BlocksPerBeat-1:0] whole_max;

  if (BeatsPerBlock == 1) begin : gen_block_in_beat
    assign whole_valid = valid2_q;
    assign whole_data  = data2_q;
    assign whole_last  = last2_q;
    assign whole_max   = beat_max2_q;
    assign whole_first = 1'b1;
    assign en          = round_en;
  end else begin : gen_block_over_beats
    localparam int unsigned IndexWidth = $clog2(BeatsPerBlock);
    localparam logic [IndexWidth-1:0] LastIndex = IndexWidth'(BeatsPerBlock - 1);

    logic [IndexWidth-1:0] in_index_q, out_index_q;
    logic [7:0]            max_q, max_so_far;
    logic                  beat_ready, max_ready, max_valid, beat_valid, is_last_in, is_last_out, moves_in, moves_out;

    assign max_so_far = in_index_q == '0 || beat_max2_q[7:0] > max_q ? beat_max2_q[7:0] : max_q;
    assign is_last_in = in_index_q == LastIndex;
    // The first two stages move on when their last beat has been accepted, or when they hold no beat.
    assign en         = !valid2_q || (beat_ready && max_ready);
    assign moves_in   = valid2_q && beat_ready && max_ready;

    stream_queue #(
      .Width(32 * Lanes + 1),
      .Depth(2 * BeatsPerBlock)
    ) u_beats (
      .clk_i,
      .rst_ni,
      .s_valid_i(moves_in),
      .s_ready_o(beat_ready),
      .s_data_i ({last2_q, data2_q}),
      .m_valid_o(beat_valid),
      .m_ready_i(moves_out),
      .m_data_o ({whole_last, whole_data})
    );

    stream_queue #(
      .Width(8),
      .Depth(2)
    ) u_exponents (
      .clk_i,
      .rst_ni,
      .s_valid_i(moves_in && is_last_in),
      .s_ready_o(max_ready),
      .s_data_i (max_so_far),
      .m_valid_o(max_valid),
      .m_ready_i(moves_out && is_last_out),
      .m_data_o (whole_max)
    );

    assign is_last_out = out_index_q == LastIndex;
    assign whole_valid = beat_valid && max_valid;
    assign whole_first = out_index_q == '0;
    assign moves_out   = whole_valid && round_en;

    always_ff @(posedge clk_i or negedge rst_ni) begin
      if (!rst_ni) begin
        in_index_q  <= '0;
        out_index_q <= '0;
      end else begin
        if (moves_in) in_index_q <= in_index_q + 1'b1;
        if (moves_out) out_index_q <= out_index_q + 1'b1;
      end
    end

    always_ff @(posedge clk_i) begin
      if (moves_in) max_q <= max_so_far;
    end
  end

  // --- 3: shifted to a fixed point below the block's exponent; 4: rounded, clamped and given its sign ---
  localparam logic [Mantissa-1:0] Largest    = '1;
  localparam int unsigned         WindowBits = $clog2(Mantissa + 1);

  logic                       valid3_q, valid4_q, last3_q, last4_q, first3_q, first4_q;
  logic [8*BlocksPerBeat-1:0] exponent3_q, exponent4_q;
  logic [Q*Lanes-1:0]         mantissa4_q;

  assign round_en = m_tready_i || !valid4_q;

  for (genvar lane = 0; lane < Lanes; lane++) begin : gen_lane
    localparam int unsigned InBlock = lane / LanesPerBlock;

    logic [31:0]         x;
    logic [7:0]          distance, block_max;
    logic                is_normal;
    logic [23:0]         significand;
    logic [Mantissa:0]   window, window3_q;  // the whole part and one bit for rounding
    logic                sticky, sticky3_q, sign3_q;
    logic [Mantissa-1:0] whole, magnitude;
    logic                round_up;

    assign x           = whole_data[32*lane +: 32];
    assign block_max   = whole_max[8*InBlock +: 8];
    assign is_normal   = x[30:23] != 8'd0;
    assign significand = {is_normal, x[22:0]};
    // The exponent of a subnormal number is 1. Both distances are computed before it is known.
    assign distance    = is_normal ? block_max - x[30:23] : block_max - 8'd1;

    // A number so small that it shifts out of the window is less than a half of the last place: all that counts of
    // other distances is the bits that the window can lose.
    always_comb begin
      window = significand[23 -: Mantissa+1] >> distance[WindowBits-1:0];
      sticky = |significand[22-Mantissa:0];
      for (int unsigned bit_ = 0; bit_ < Mantissa; bit_++) begin
        if (bit_ < 32'(distance[WindowBits-1:0]) && significand[23-Mantissa+bit_]) sticky = 1'b1;
      end
      if (distance > 8'(Mantissa) || block_max == 8'hff || block_max < 8'(Mantissa)) begin
        window = '0;
        sticky = 1'b0;
      end
    end

    always_ff @(posedge clk_i) begin
      if (round_en) begin
        window3_q <= window;
        sticky3_q <= sticky;
        sign3_q   <= x[31];
      end
    end

    assign whole     = window3_q[Mantissa:1];
    assign round_up  = window3_q[0] && (sticky3_q || whole[0]) && whole != Largest;
    assign magnitude = whole + Mantissa'(round_up);

    always_ff @(posedge clk_i) begin
      if (round_en) mantissa4_q[Q*lane +: Q] <= sign3_q ? -{1'b0, magnitude} : {1'b0, magnitude};
    end
  end

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      valid3_q <= 1'b0;
      valid4_q <= 1'b0;
    end else if (round_en) begin
      valid3_q <= whole_valid;
      valid4_q <= valid3_q;
    end
  end

  always_ff @(posedge clk_i) begin
    if (round_en) begin
      for (int unsigned block = 0; block < BlocksPerBeat; block++) begin
        exponent3_q[8*block +: 8] <= whole_max[8*block +: 8] < 8'(Mantissa) ? 8'd0 : whole_max[8*block +: 8];
      end
      last3_q     <= whole_last;
      first3_q    <= whole_first;
      exponent4_q <= exponent3_q;
      last4_q     <= last3_q;
      first4_q    <= first3_q;
    end
  end

  assign m_tvalid_o   = valid4_q;
  assign m_exponent_o = exponent4_q;
  assign m_mantissa_o = mantissa4_q;
  assign m_first_o    = first4_q;
  assign m_tlast_o    = last4_q;

endmodule
