-- ack: end the leases of runs; the charge is settled against the seconds held, and parked lanes of the same lane keys wake.
-- KEYS[1] meta; ARGV[1..7] see lib/context; ARGV[8..] tokens
-- Returns 'lost' | 'moved' | the tokens that were held
-- Keeps: a token ends once; a lane that waits for room is woken before the lease that makes it is gone.
--- include drain
--- include context
--- include queue
--- include lane
--- include ring
--- include wake
--- include lease
--- include settle
local held = leased(tokens_from(8))
for _, lease in ipairs(held) do
  if not lease.postponed then learn(open_queue(lease.queue), lease.lane, math.max(0, now - lease.claimed)) end
  lease.refund = owed(lease, now)
end
end_leases(held)
return names_of(held)
