-- postpone: give claims back for later: the charge is refunded, the lease stays (and counts against the cap) until the reaper takes it then.
-- KEYS[1] meta; ARGV[1..7] see lib/context; ARGV[8] delay in us  [9..] tokens
-- Returns 'lost' | 'moved' | the tokens that were held
-- Keeps: the first delay counts; a postponed lease is not renewed and not settled again.
--- include drain
--- include context
--- include queue
--- include lane
--- include ring
--- include lease
--- include settle
local held, fresh = leased(tokens_from(9)), {}
for _, lease in ipairs(held) do
  if not lease.postponed then
    lease.refund = lease.charged
    fresh[#fresh + 1] = lease
  end
end
settle(fresh)
for _, lease in ipairs(fresh) do
  lease.charged, lease.postponed = 0, true
  call('HSET', root .. 'lease', lease.token, pack_lease(lease))
  call('ZADD', root .. 'expiry', now + tonumber(ARGV[8]), lease.token)
end
close_queues()
return names_of(held)
