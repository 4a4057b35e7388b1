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
  output beat_t             m_beat_o
);

  // Sources: queues by port and the notices; sums by port; pauses.
  localparam int unsigned Turns = Ports + 1;

  logic [Turns-1:0] queue_request, queue_grant, queues_q;
  logic [Ports-1:0] sum_grant, sums_q;
  logic             pause_q, is_sending_q, is_ending_q, was_sum_q, was_pause_q;
  logic             is_pause, is_sum, is_queue, starts, ends;

  // --- Choosing, between frames ---
  assign queue_request = {notice_valid_i, queue_valid_i};
  assign is_pause      = pause_valid_i && (!was_pause_q || !(|queue_request || |sum_valid_i));
  assign is_sum        = !is_pause && |sum_valid_i && (!was_sum_q || !(|queue_request));
  assign is_queue      = !is_pause && !is_sum && |queue_request;
  assign starts        = !is_sending_q && (is_pause || is_sum || is_queue);
  assign ends          = m_valid_o && m_ready_i && m_beat_o.last;

  round_robin #(.Requests(Turns)) u_queues (
    .clk_i, .rst_ni, .request_i(queue_request), .take_i(starts && is_queue), .grant_o(queue_grant)
  );
  round_robin #(.Requests(Ports)) u_sums (
    .clk_i, .rst_ni, .request_i(sum_valid_i), .take_i(starts && is_sum), .grant_o(sum_grant)
  );

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      is_sending_q <= 1'b0;
      is_ending_q  <= 1'b0;
      queues_q     <= '0;
      sums_q       <= '0;
      pause_q      <= 1'b0;
      was_sum_q    <= 1'b0;
      was_pause_q  <= 1'b0;
    end else begin
      if (starts) begin
        queues_q    <= is_queue ? queue_grant : '0;
        sums_q      <= is_sum ? sum_grant : '0;
        pause_q     <= is_pause;
        was_sum_q   <= is_pause ? was_sum_q : is_sum;
        was_pause_q <= is_pause;
      end
      is_sending_q <= starts || (is_sending_q && !ends);
      is_ending_q  <= (is_ending_q || (sums_end_i && is_sending_q && (|sums_q || queues_q[Ports]))) && !ends;
    end
  end

  // --- Sending ---
  always_comb begin
    m_beat_o = '0;
    for (int unsigned i = 0; i < Ports; i++) begin
      if (queues_q[i]) m_beat_o |= queue_beat_i[i];
      if (sums_q[i]) m_beat_o |= sum_beat_i[i];
    end
    if (queues_q[Ports]) m_beat_o |= notice_beat_i;
    if (pause_q) m_beat_o |= pause_beat_i;
    m_valid_o = is_sending_q && |{queues_q & queue_request, sums_q & sum_valid_i, pause_q && pause_valid_i};
    if (is_ending_q) begin
      m_valid_o = 1'b1;
      m_beat_o  = '{error: 1'b1, last: 1'b1, extra: '1, data: '0};
    end
  end

  assign queue_ready_o  = queues_q[Ports-1:0] & {Ports{is_sending_q && m_ready_i}};
  assign notice_ready_o = queues_q[Ports] && is_sending_q && m_ready_i;
  assign sum_ready_o    = sums_q & {Ports{is_sending_q && m_ready_i && !is_ending_q}};
  assign pause_ready_o  = pause_q && is_sending_q && m_ready_i;

endmodule
