-- read_epoch: the current epoch.
-- KEYS[1] meta
-- Returns {id, state, snapshot}, each nil when there is none
return redis.call('HMGET', KEYS[1], 'epoch', 'state', 'snapshot')
