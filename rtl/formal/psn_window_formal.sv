// psn_window: the meaning of a place. Pointers advance by a column only at a Write First. A base is the value of its
// Write First, or invalid. A packet that is found lies in a message that covers it, and no newer message covers it.
module psn_window_formal (
  input logic        clk_i,
  input logic        clear_i,
  input logic        forget_i,
  input logic        open_i,
  input logic        reopen_i,
  input logic [1:0]  column_i,
  input logic [23:0] base_i,
  input logic [7:0]  packets_i,
  input logic [23:0] psn_i,
  input logic [1:0]  follow_i  // any column; it represents all
);

  localparam logic [24:0] NoBase = 25'h1ffffff;

  logic             first = 1'b1;
  logic             is_found, is_ahead, was_set, was_forgotten, was_opened, was_cleared;
  logic [8:0]       place;
  logic [3:0][24:0] bases;
  logic [24:0]      was_base, set_base;
  logic [1:0]       was_follow, was_next;
  logic [23:0]      distance, newer_distance;
  logic [1:0]       steps, newer_steps;

  psn_window u_window (
    .clk_i, .rst_ni(!first), .clear_i, .forget_i, .open_i, .reopen_i, .column_i, .base_i, .packets_i, .psn_i,
    .is_found_o(is_found), .place_o(place), .is_ahead_o(is_ahead), .bases_o(bases)
  );

  always_ff @(posedge clk_i) begin
    first         <= 1'b0;
    was_follow    <= follow_i;
    was_base      <= bases[follow_i];
    was_next      <= u_window.next_q;
    was_set       <= !first && (open_i || reopen_i) && (open_i ? u_window.next_q : column_i) == follow_i;
    was_forgotten <= first || clear_i || forget_i;
    was_opened    <= !first && open_i && !clear_i;
    was_cleared   <= first || clear_i;
    set_base      <= {1'b0, base_i};
  end

  // The distance of a column from the newest message: 0 is p3.
  assign steps          = u_window.next_q - 2'd1 - place[8:7];
  assign newer_steps    = u_window.next_q - 2'd1 - follow_i;
  assign distance       = psn_i - bases[place[8:7]][23:0];
  assign newer_distance = psn_i - bases[follow_i][23:0];

  always_comb begin
    if (!first) begin
      assume (follow_i == was_follow);
      assume (packets_i != '0 && packets_i <= 8'd128);
      for (int c = 0; c < 4; c++) assert (u_window.packets_q[c] <= 8'd128);
      // A base changes only when it is set or cleared.
      assert (bases[follow_i] == (was_set ? set_base : was_forgotten ? NoBase : was_base));
      assert (bases[follow_i][24] == 1'b0 || bases[follow_i] == NoBase);
      assert (u_window.next_q == (was_cleared ? 2'd0 : was_opened ? was_next + 2'd1 : was_next));
      // The result of a search.
      if (is_found) begin
        assert (!bases[place[8:7]][24] && distance == 24'(place[6:0]));
        assert (distance < 24'(u_window.packets_q[place[8:7]]));
        if (newer_steps < steps) begin
          assert (bases[follow_i][24] || newer_distance >= 24'(u_window.packets_q[follow_i]));
        end
      end else begin
        assert (bases[follow_i][24] || newer_distance >= 24'(u_window.packets_q[follow_i]));
      end
    end
  end

endmodule
