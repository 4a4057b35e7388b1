// The connection that one port's worker folds over in one job: its two ends, and the messages that are in flight. The
// law is RoceJob::Connection's in core/switch/protocols/roce/roce_job.cc.
module aggregation_connection
  import switch_pkg::*;
  import aggregation_pkg::*;
(
  input  logic         clk_i,
  input  logic         rst_ni,

  input  frame_info_t  info_i,        // the frame that is judged; held

  input  logic         clear_i,       // the job has a new epoch, or is forgotten
  input  logic         unbind_i,      // another job has taken the connection over
  input  logic         bind_i,        // to what `info_i` says
  input  logic         open_i,        // ... whose message is the next
  input  logic         reopen_i,      // ... whose message has a column
  input  shorts_t      shorts_i,      // of that message

  output connection_t  connection_o,
  output logic [15:0]  rank_o,
  output logic         matches_o,     // the frame is this connection's
  output logic         is_same_o,     // ... and comes from whom it began with
  // Of a Write First: has_other_rank, is_spoofed, is_next and verdict; the others are not the connection's to know.
  output first_facts_t facts_o,
  // Of a later packet.
  output logic         is_found_o,
  output logic         is_ahead_o,
  output logic [8:0]   place_o,
  // Of a place's column.
  input  logic [1:0]   column_i,
  output logic [31:0]  message_o,
  output shape_t       shape_o,
  output shorts_t      shorts_o
);

  logic             is_bound_q, is_v2_q, is_fresh_q;
  addresses_t       addresses_q;
  logic [255:0]     gids_q;
  logic [23:0]      queue_pair_q;
  logic [RankBits-1:0] rank_q;
  logic [31:0]      next_q;     // message
  shape_t [3:0]     shapes_q;
  shorts_t [3:0]    shorts_q;
  logic [3:0][24:0] bases;
  logic [3:0]       is_base;    // the sequence number is the column's base
  logic [1:0]       column;     // of the Write First
  logic [31:0]      behind;
  shape_t           shape;
  logic             matches_q, has_base_q, has_moved_q, is_rebound, forgets, sets;

  logic unused_info;
  assign unused_info = ^info_i;

  assign column       = info_i.aggregation.message[1:0];
  assign shape        = shape_of(info_i.aggregation.length_bytes, info_i.aggregation.format[2:0],
                                 info_i.aggregation.flags[7:WorkersShift], info_i.aggregation.flags[0],
                                 way_of(info_i.aggregation.flags[OneWayBit], info_i.aggregation.rank[15],
                                        info_i.aggregation.rank[8 +: RankBits]));
  assign matches_o    = is_bound_q && queue_pair_q == info_i.queue_pair && addresses_q.to == info_i.addresses.to &&
                        is_v2_q == info_i.is_v2;
  assign is_same_o    = addresses_q.from == info_i.addresses.from && gids_q == info_i.gids;
  assign rank_o       = 16'(rank_q);
  assign connection_o = '{is_bound: is_bound_q, is_v2: is_v2_q, queue_pair: queue_pair_q, to: addresses_q.to};

  // A worker may open the next message, or send any of its last four again. Of those none has a number above the next
  // one's: they end at message 0.
  assign behind = next_q - info_i.aggregation.message;
  always_comb begin
    facts_o                = '0;
    // A rank of more bits is wrong in any case.
    facts_o.has_other_rank = is_bound_q && rank_q != info_i.aggregation.rank[RankBits-1:0];
    facts_o.is_spoofed     = matches_o && !is_same_o;
    facts_o.is_next        = behind == '0;
    if (behind[31] || behind == '0) begin
      facts_o.verdict = VerdictOrder;
    end else if (behind > 32'(Columns) || info_i.aggregation.message > next_q) begin
      facts_o.verdict = VerdictStale;
    end else if (shapes_q[column] != shape) begin
      facts_o.verdict = VerdictMismatch;
    end else begin
      facts_o.verdict = VerdictKept;
    end
  end

  // A message that goes on under new sequence numbers has begun its connection anew: no other number means anything.
  // These three are compared a cycle before the Job Table answers. It asks for the facts in the cycle before that, and
  // what is compared is the same from then on.
  always_ff @(posedge clk_i) begin
    matches_q   <= matches_o;
    has_base_q  <= !bases[column][24];
    has_moved_q <= !is_base[column];
  end
  assign is_rebound = bind_i && is_bound_q && !matches_q;
  assign sets       = reopen_i && (has_moved_q || is_rebound);
  assign forgets    = is_rebound || (reopen_i && has_moved_q && has_base_q);

  psn_window u_window (
    .clk_i,
    .rst_ni,
    .clear_i,
    .forget_i  (forgets),
    .open_i,
    .reopen_i  (sets),
    .column_i  (column),
    .base_i    (info_i.psn),
    .packets_i (packets_of(shape.last_word)),
    .psn_i     (info_i.psn),
    .is_found_o,
    .place_o,
    .is_ahead_o,
    .is_base_o (is_base),
    .bases_o   (bases)
  );

  // The newest message of the column: one of the last four.
  assign message_o = {next_q[31:2] - 30'(column_i >= next_q[1:0]), column_i};
  assign shape_o   = shapes_q[column_i];
  assign shorts_o  = shorts_q[column_i];

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      is_bound_q <= 1'b0;
      is_fresh_q <= 1'b1;
    end else begin
      is_bound_q <= !clear_i && (bind_i || (is_bound_q && !unbind_i));
      is_fresh_q <= 1'b0;
    end
  end

  // No message is counted in the first cycle after a reset. A register that both a reset and a signal clear would take
  // a LUT for each bit.
  always_ff @(posedge clk_i) begin
    if (clear_i || is_fresh_q) begin
      next_q <= '0;
    end else if (open_i) begin
      next_q <= next_q + 32'd1;
    end
    if (bind_i) begin
      addresses_q  <= info_i.addresses;
      gids_q       <= info_i.gids;
      is_v2_q      <= info_i.is_v2;
      queue_pair_q <= info_i.queue_pair;
      rank_q       <= info_i.aggregation.rank[RankBits-1:0];
    end
    if (open_i) begin
      shapes_q[column] <= shape;
      shorts_q[column] <= shorts_i;
    end
  end

endmodule
