-- begin_rebuild: start a new epoch, empty and "rebuilding", in place of the one the caller saw.
-- KEYS[1] meta; ARGV[1] new epoch  [2] the epoch it replaces, '' for none
-- Returns 'ok' | 'other': the current epoch is not the one to replace
-- Keeps: of two rebuilders one wins; told twice, the winner hears 'ok' again. The older epoch's keys are no longer reached.
local current = redis.call('HGET', KEYS[1], 'epoch') or ''
if current == ARGV[1] then return 'ok' end
if current ~= ARGV[2] then return 'other' end
redis.call('DEL', KEYS[1])
redis.call('HSET', KEYS[1], 'epoch', ARGV[1], 'state', 'rebuilding')
return 'ok'
