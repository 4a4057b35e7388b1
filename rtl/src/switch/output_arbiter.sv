// The Output Stage of one port (allreduce-switch, IV-E): which frame leaves next. Whole frames: sums have half of the
// turns when there are any, the rest goes round the queues of all ports, and notices; sums go round their ports. A pause
// frame comes first, but never twice in a row.
module output_arbiter
  import switch_pkg::*;
#(
  parameter int unsigned Ports = 8
) (
  input  logic              clk_i,
  input  logic              rst_ni,

  input  logic  [Ports-1:0] queue_valid_i,
  output logic  [Ports-1:0] queue_ready_o,
  input  beat_t [Ports-1:0] queue_beat_i,
  input  logic              notice_valid_i,
  output logic              notice_ready_o,
  input  beat_t             notice_beat_i,
  input  logic  [Ports-1:0] sum_valid_i,     // a sum for this port
  output logic  [Ports-1:0] sum_ready_o,
  input  beat_t [Ports-1:0] sum_beat_i,
  input  logic              sums_end_i,      // the aggregation stage is reset: what it has begun is ended, damaged
  input  logic              pause_valid_i,
  output logic              pause_ready_o,
  input  beat_t             pause_beat_i,

  output logic              m_valid_o,
  input  logic              m_ready_i,
  output beat_t             m_beat_o,
  output departure_t        departure_o      // what to count
);

  localparam int unsigned Turns      = Ports + 1;  // queues by port, and notices
  localparam int unsigned IndexWidth = $clog2(Ports);
  localparam int unsigned Width      = $bits(beat_t);

  // One bit is set. Encoded sources, and grants decoded from `index_q`, would take 200 LUTs more: what is chosen
  // between beats is then decoded for each bit of a beat.
  typedef struct packed {
    logic of_queue, of_notice, of_sum, of_pause;
  } source_t;

  source_t               source_q;
  logic [IndexWidth-1:0] index_q, index_d;  // of the port, of queues and sums
  logic [Turns-1:0]      queue_request, queue_grant;
  logic [Ports-1:0]      sum_grant, chosen, chosen_q;
  logic                  is_sending_q, is_ending_q, was_sum_q, was_pause_q;
  logic                  is_pause, is_sum, is_queue, starts, ends;

  // --- Choosing, between frames ---
  assign queue_request = {notice_valid_i, queue_valid_i};
  assign is_pause      = pause_valid_i && (!was_pause_q || !(|queue_request || |sum_valid_i));
  assign is_sum        = !is_pause && |sum_valid_i && (!was_sum_q || !(|queue_request));
  assign is_queue      = !is_pause && !is_sum && |queue_request;
  assign starts        = !is_sending_q && (is_pause || is_sum || is_queue);
  assign ends          = m_valid_o && m_ready_i && m_beat_o.last;
  assign chosen        = is_sum ? sum_grant : queue_grant[Ports-1:0];

  round_robin #(.Requests(Turns)) u_queues (
    .clk_i, .rst_ni, .request_i(queue_request), .take_i(starts && is_queue), .grant_o(queue_grant)
  );
  round_robin #(.Requests(Ports)) u_sums (
    .clk_i, .rst_ni, .request_i(sum_valid_i), .take_i(starts && is_sum), .grant_o(sum_grant)
  );

  always_comb begin
    index_d = '0;
    for (int unsigned port = 0; port < Ports; port++) if (chosen[port]) index_d |= IndexWidth'(port);
  end

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      source_q     <= '0;
      index_q      <= '0;
      chosen_q     <= '0;
      is_sending_q <= 1'b0;
      is_ending_q  <= 1'b0;
      was_sum_q    <= 1'b0;
      was_pause_q  <= 1'b0;
    end else begin
      if (starts) begin
        source_q    <= '{of_pause: is_pause, of_sum: is_sum, of_notice: is_queue && queue_grant[Ports],
                         of_queue: is_queue && !queue_grant[Ports]};
        index_q     <= index_d;
        chosen_q    <= chosen;
        was_sum_q   <= is_pause ? was_sum_q : is_sum;
        was_pause_q <= is_pause;
      end
      is_sending_q <= starts || (is_sending_q && !ends);
      is_ending_q  <= !ends && (is_ending_q || (sums_end_i && is_sending_q &&
                                                (source_q.of_sum || source_q.of_notice)));
    end
  end

  // --- Sending ---
  beat_t   queue_beat, sum_beat;
  source_t offers;

  selector #(.Inputs(Ports), .Width(Width)) u_queue_beat (
    .index_i(index_q), .data_i(queue_beat_i), .data_o(queue_beat)
  );
  selector #(.Inputs(Ports), .Width(Width)) u_sum_beat (
    .index_i(index_q), .data_i(sum_beat_i), .data_o(sum_beat)
  );

  always_comb begin
    queue_ready_o  = chosen_q & {Ports{is_sending_q && source_q.of_queue && m_ready_i}};
    sum_ready_o    = chosen_q & {Ports{is_sending_q && source_q.of_sum && m_ready_i && !is_ending_q}};
    notice_ready_o = is_sending_q && source_q.of_notice && m_ready_i && !is_ending_q;
    pause_ready_o  = is_sending_q && source_q.of_pause && m_ready_i;

    m_beat_o = ({Width{source_q.of_queue}} & queue_beat) | ({Width{source_q.of_sum}} & sum_beat) |
               ({Width{source_q.of_notice}} & notice_beat_i) | ({Width{source_q.of_pause}} & pause_beat_i);

    offers.of_queue  = |(queue_valid_i & chosen_q);
    offers.of_sum    = |(sum_valid_i & chosen_q);
    offers.of_notice = notice_valid_i;
    offers.of_pause  = pause_valid_i;
    m_valid_o        = is_sending_q && (source_q & offers) != '0;
    if (is_ending_q) begin
      m_valid_o      = 1'b1;
      m_beat_o.error = 1'b1;
      m_beat_o.last  = 1'b1;
    end
  end

  // --- Counting ---
  logic [7:0] beats_q;  // of the frame that is on its way

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      beats_q <= '0;
    end else if (m_valid_o && m_ready_i) begin
      beats_q <= m_beat_o.last ? '0 : beats_q + 1'b1;
    end
  end

  assign departure_o = '{ended: ends, bytes: {beats_q, m_beat_o.extra} + 11'd1, sum: source_q.of_sum,
                         notice: source_q.of_notice, pause: source_q.of_pause};

endmodule
