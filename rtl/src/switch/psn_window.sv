// Which column a RoCE packet belongs in, found from only its sequence number: four floating base pointers, Fig. 13.
//
// A column's base is the sequence number of its Write First. `bases_o` has all bits set for a column without a base. A
// packet is compared with the bases of p3, p2, p1, p0 in this order, all at once, and lies in the first column whose
// message covers it. Distances are modulo 2^24 and within the message's length, which the paper's comparison by size is
// not: it loses packets of a message that crossed the wrap. The law is core/switch/aggregation/psn_window.h's.
module psn_window (
  input  logic             clk_i,
  input  logic             rst_ni,

  input  logic             clear_i,    // all, pointers too
  input  logic             forget_i,   // the bases; one that is set in the same cycle stays
  input  logic             open_i,     // a message begins in the column that pnext points to
  input  logic             reopen_i,   // a message that has `column_i` goes on under other numbers
  input  logic [1:0]       column_i,
  input  logic [23:0]      base_i,
  input  logic [7:0]       packets_i,  // 1 to 128

  input  logic [23:0]      psn_i,
  output logic             is_found_o,
  output logic [8:0]       place_o,
  output logic             is_ahead_o,  // less than a window behind the newest message's first
  output logic [3:0]       is_base_o,   // the packet's sequence number is this column's base
  output logic [3:0][24:0] bases_o
);

  localparam logic [24:0] NoBase = 25'h1ffffff;
  localparam int unsigned WindowPackets = 512;

  // Only `has_base_q` is forgotten: a register that both a reset and a signal clear costs a LUT for each bit.
  logic [3:0]       has_base_q;
  logic [3:0][23:0] bases_q;
  logic [3:0][7:0]  packets_q;
  logic [1:0]       next_q, set_column, column;
  logic [3:0][23:0] distance;
  logic [3:0]       covers, is_near;

  assign set_column = open_i ? next_q : column_i;

  always_comb begin
    for (int unsigned c = 0; c < 4; c++) begin
      bases_o[c]   = has_base_q[c] ? {1'b0, bases_q[c]} : NoBase;
      distance[c]  = psn_i - bases_q[c];
      covers[c]    = has_base_q[c] && distance[c][23:7] == '0 && 8'(distance[c][6:0]) < packets_q[c];
      is_base_o[c] = has_base_q[c] && distance[c] == '0;
      is_near[c]   = !has_base_q[c] || distance[c] < 24'(WindowPackets);
    end
  end

  always_comb begin
    is_found_o = 1'b0;
    place_o    = '0;
    column     = '0;
    for (int unsigned back = 4; back >= 1; back--) begin  // the last that covers it wins: p3
      column = next_q - 2'(back);
      if (covers[column]) begin
        is_found_o = 1'b1;
        place_o    = {column, distance[column][6:0]};
      end
    end
    column     = next_q - 2'd1;
    is_ahead_o = is_near[column];
  end

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      has_base_q <= '0;
      bases_q    <= '0;
      packets_q  <= '0;
      next_q     <= '0;
    end else begin
      if (clear_i || forget_i) has_base_q <= '0;
      if (open_i || reopen_i) begin
        has_base_q[set_column] <= 1'b1;
        bases_q[set_column]    <= base_i;
        packets_q[set_column]  <= packets_i;
      end
      if (clear_i) begin
        next_q <= '0;
      end else if (open_i) begin
        next_q <= next_q + 2'd1;
      end
    end
  end

endmodule
