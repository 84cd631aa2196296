-- renew: extend leases by the lease time; also the confirm after a start.
-- KEYS[1] meta; ARGV[1..7] see lib/context; ARGV[8..] tokens
-- Returns 'lost' | 'moved' | the tokens that are still leased (postponed ones were given back)
-- Keeps: a lease that ended does not come back.
--- include drain
--- include context
--- include lease
local alive, expiries = {}, {}
for _, lease in ipairs(leased(tokens_from(8))) do
  if not lease.postponed then
    alive[#alive + 1] = lease.token
    expiries[#expiries + 1] = now + lease_us
    expiries[#expiries + 1] = lease.token
  end
end
if #alive > 0 then call('ZADD', root .. 'expiry', unpack(expiries)) end
return alive
