-- open_epoch: end "rebuilding": claims are answered again.
-- KEYS[1] meta; ARGV[1..7] see lib/context
-- Returns 'lost' | 'moved' | 'ok'
--- include context
call('HSET', KEYS[1], 'state', 'open')
return 'ok'
