-- store_snapshot: remember up to which ledger snapshot every row was offered.
-- KEYS[1] meta; ARGV[1..7] see lib/context; ARGV[8] the snapshot
-- Returns 'lost' | 'moved' | 'ok'
--- include context
call('HSET', KEYS[1], 'snapshot', ARGV[8])
return 'ok'
