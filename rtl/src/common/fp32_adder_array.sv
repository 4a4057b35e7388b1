// Adds two streams of beats lane by lane: a beat of `a` and one of `b` leave together as one sum, AdderStages cycles
// later. A sideband (`b_user_i`) travels with `b`.
module fp32_adder_array #(
  parameter int unsigned Lanes      = 8,
  parameter int unsigned UserWidth  = 1,
  parameter bit          Subnormals = 1'b1
) (
  input  logic                  clk_i,
  input  logic                  rst_ni,

  input  logic                  a_tvalid_i,
  output logic                  a_tready_o,
  input  logic [32*Lanes-1:0]   a_tdata_i,

  input  logic                  b_tvalid_i,
  output logic                  b_tready_o,
  input  logic [32*Lanes-1:0]   b_tdata_i,
  input  logic [UserWidth-1:0]  b_tuser_i,

  output logic                  m_tvalid_o,
  input  logic                  m_tready_i,
  output logic [32*Lanes-1:0]   m_tdata_o,
  output logic [UserWidth-1:0]  m_tuser_o
);

  localparam int unsigned Stages = fp32_pkg::AdderStages;

  logic [Stages-1:0]    valid_q;
  logic [UserWidth-1:0] user_q [Stages];
  logic                 en, starts, skid_ready;
  logic [32*Lanes-1:0]  sum;

  // The pipeline stands still while its last stage holds a sum that is not taken.
  assign en         = skid_ready || !valid_q[Stages-1];
  assign starts     = a_tvalid_i && b_tvalid_i;
  assign a_tready_o = en && b_tvalid_i;
  assign b_tready_o = en && a_tvalid_i;

  for (genvar lane = 0; lane < Lanes; lane++) begin : gen_lane
    fp32_adder #(
      .Subnormals(Subnormals)
    ) u_adder (
      .clk_i,
      .en_i (en),
      .a_i  (a_tdata_i[32*lane +: 32]),
      .b_i  (b_tdata_i[32*lane +: 32]),
      .sum_o(sum[32*lane +: 32])
    );
  end

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      valid_q <= '0;
    end else if (en) begin
      valid_q <= {valid_q[Stages-2:0], starts};
    end
  end

  always_ff @(posedge clk_i) begin
    if (en) begin
      user_q[0] <= b_tuser_i;
      for (int unsigned stage = 1; stage < Stages; stage++) user_q[stage] <= user_q[stage-1];
    end
  end

  stream_skid #(
    .Width(32 * Lanes + UserWidth)
  ) u_skid (
    .clk_i,
    .rst_ni,
    .s_valid_i(valid_q[Stages-1]),
    .s_ready_o(skid_ready),
    .s_data_i ({user_q[Stages-1], sum}),
    .m_valid_o(m_tvalid_o),
    .m_ready_i(m_tready_i),
    .m_data_o ({m_tuser_o, m_tdata_o})
  );

endmodule
