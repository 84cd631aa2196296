-- release: end the leases of claims that never ran; the charge is refunded, the job is then absent.
-- KEYS[1] meta; ARGV[1..7] see lib/context; ARGV[8..] tokens
-- Returns 'lost' | 'moved' | the tokens that were held
-- Keeps: as ack.
--- include drain
--- include context
--- include queue
--- include lane
--- include ring
--- include wake
--- include lease
--- include settle
local held = leased(tokens_from(8))
for _, lease in ipairs(held) do lease.refund = lease.charged end
end_leases(held)
return names_of(held)
