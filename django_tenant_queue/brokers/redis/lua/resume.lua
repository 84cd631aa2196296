-- resume: what the claim with this request id took and still holds. Changes nothing.
-- KEYS[1] meta; ARGV[1..7] see lib/context; ARGV[8] request id
-- Returns 'lost' | 'moved' | {token, lease, token, lease, ...}, empty when the claim never arrived
--- include context
--- include lease
--- include request
return taken_by(ARGV[8], 0) or {}
