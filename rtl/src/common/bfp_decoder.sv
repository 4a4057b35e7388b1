// Block floating point, from pieces to numbers: exact, two stages. Exponent 0 gives +0, exponent 255 NaN; one between 0
// and the mantissa's width is malformed, gives NaN and is reported. The opposite of bfp_encoder.
module bfp_decoder #(
  parameter int unsigned Lanes    = 16,
  parameter int unsigned Block    = 16,
  parameter int unsigned Mantissa = 7,
  parameter int unsigned UserWidth = 1,
  localparam int unsigned BlocksPerBeat = Lanes > Block ? Lanes / Block : 1
) (
  input  logic                          clk_i,
  input  logic                          rst_ni,

  input  logic                          s_tvalid_i,
  output logic                          s_tready_o,
  input  logic [8*BlocksPerBeat-1:0]    s_exponent_i,
  input  logic [(Mantissa+1)*Lanes-1:0] s_mantissa_i,
  input  logic [UserWidth-1:0]          s_tuser_i,

  output logic                          m_tvalid_o,
  input  logic                          m_tready_i,
  output logic [32*Lanes-1:0]           m_tdata_o,
  output logic [UserWidth-1:0]          m_tuser_o,

  output logic                          malformed_o  // a cycle long, for a beat with a malformed exponent
);

  localparam int unsigned Q             = Mantissa + 1;
  localparam int unsigned PlaceWidth    = $clog2(Q);
  localparam int unsigned LanesPerBlock = Lanes / BlocksPerBeat;
  localparam logic [31:0] Nan           = 32'h7fc00000;

  logic                 en, valid1_q, valid2_q;
  logic [UserWidth-1:0] user1_q, user2_q;
  logic [32*Lanes-1:0]  number2_q;
  logic                 is_malformed;

  assign en         = m_tready_i || !valid2_q;
  assign s_tready_o = en;

  always_comb begin
    is_malformed = 1'b0;
    for (int unsigned block = 0; block < BlocksPerBeat; block++) begin
      if (s_exponent_i[8*block +: 8] != 8'd0 && s_exponent_i[8*block +: 8] < 8'(Mantissa)) is_malformed = 1'b1;
    end
  end

  for (genvar lane = 0; lane < Lanes; lane++) begin : gen_lane
    logic [7:0]            shared, lowest1_q;  // exponents: the block's, and that of a mantissa of one
    logic [Q-1:0]          q, magnitude, magnitude1_q;
    logic [Q-2:0]          fraction;
    logic                  sign1_q, is_zero1_q, is_nan1_q;
    logic [PlaceWidth-1:0] place, place1_q;  // of the leading one

    assign shared    = s_exponent_i[8*(lane/LanesPerBlock) +: 8];
    assign q         = s_mantissa_i[Q*lane +: Q];
    assign magnitude = q[Q-1] ? -q : q;

    always_comb begin
      place = '0;
      for (int unsigned bit_ = 0; bit_ < Q; bit_++) begin
        if (magnitude[bit_]) place = PlaceWidth'(bit_);
      end
    end

    always_ff @(posedge clk_i) begin
      if (en) begin
        magnitude1_q <= magnitude;
        place1_q     <= place;
        lowest1_q    <= shared - 8'(Mantissa - 1);
        sign1_q      <= q[Q-1];
        is_zero1_q   <= shared == 8'd0 || q == '0;
        is_nan1_q    <= shared == 8'hff || (shared != 8'd0 && shared < 8'(Mantissa));
      end
    end

    // Below the leading one.
    assign fraction = (Q - 1)'(magnitude1_q << (PlaceWidth'(Mantissa) - place1_q));

    always_ff @(posedge clk_i) begin
      if (en) begin
        if (is_nan1_q) begin
          number2_q[32*lane +: 32] <= Nan;
        end else if (is_zero1_q) begin
          number2_q[32*lane +: 32] <= '0;
        end else begin
          number2_q[32*lane +: 32] <= {
            sign1_q, lowest1_q + 8'(place1_q), fraction, {(23 - Mantissa){1'b0}}
          };
        end
      end
    end
  end

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      valid1_q    <= 1'b0;
      valid2_q    <= 1'b0;
      malformed_o <= 1'b0;
    end else begin
      if (en) begin
        valid1_q <= s_tvalid_i;
        valid2_q <= valid1_q;
      end
      malformed_o <= en && s_tvalid_i && is_malformed;
    end
  end

  always_ff @(posedge clk_i) begin
    if (en) begin
      user1_q <= s_tuser_i;
      user2_q <= user1_q;
    end
  end

  assign m_tvalid_o = valid2_q;
  assign m_tdata_o  = number2_q;
  assign m_tuser_o  = user2_q;

endmodule
