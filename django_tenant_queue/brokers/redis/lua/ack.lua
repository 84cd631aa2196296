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
local held, runs = leased(tokens_from(8)), {}
for _, lease in ipairs(held) do
  lease.refund = owed(lease, now)
  if not lease.postponed then
    local name = lease.queue .. ':' .. lease.lane
    runs[name] = runs[name] or { queue = lease.queue, lane = lease.lane }
    runs[name][#runs[name] + 1] = now - lease.claimed
  end
end
for _, held_times in pairs(runs) do learn(open_queue(held_times.queue), held_times.lane, held_times) end
end_leases(held)
return names_of(held)
