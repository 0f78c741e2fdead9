# bash completion for mqadmin, printed by: mqadmin --completion
_mqadmin() {
    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} options=
    local commands="addWritePerm allocateMQ brokerConsumeStats brokerStatus cancelMessage checkMsgSendRT cleanExpiredCQ cleanUnusedTopic cloneGroupOffset clusterList clusterRT consumeMessage consumerConnection consumerProgress consumerStatus deleteExpiredCommitLog deleteKvConfig deleteSubGroup deleteTopic dlqList dlqRedrive exportConfigs exportMetadata exportMetrics forceOpen getBrokerConfig getConsumerConfig getKvConfig getNamesrvConfig haStatus printMsg printMsgByQueue producer producerConnection queryCq queryMsgById queryMsgByKey queryMsgByOffset queryMsgByUniqueKey queryMsgTraceById rejoin resetOffsetByTime resumeCheckHalfMessage sendMessage sendMsgStatus skipAccumulatedMessage statsAll subscriptionCheck topicClusterList topicList topicRoute topicStatus transactions updateBrokerConfig updateKvConfig updateOrderConf updateSubGroup updateTopic updateTopicPerm why wipeWritePerm"
    if [ "$COMP_CWORD" -eq 1 ]; then
        mapfile -t COMPREPLY < <(compgen -W "help $commands" -- "$word")
        return
    fi
    case ${COMP_WORDS[1]} in
    help)
        [ "$COMP_CWORD" -eq 2 ] &&
            mapfile -t COMPREPLY < <(compgen -W "$commands" -- "$word")
        return ;;
    addWritePerm)
        options="--namesrvAddr --json --help --brokerName" ;;
    allocateMQ)
        options="--namesrvAddr --json --help --topic --ipList" ;;
    brokerConsumeStats)
        case $before in -o|--order) mapfile -t COMPREPLY < <(compgen -W "true false" -- "$word"); return ;; esac
        options="--namesrvAddr --json --help --brokerAddr --level --timeoutMillis --order" ;;
    brokerStatus)
        options="--namesrvAddr --json --help --brokerAddr --brokerId --clusterName" ;;
    cancelMessage)
        options="--namesrvAddr --json --help --msgId --msgKey" ;;
    checkMsgSendRT)
        options="--namesrvAddr --json --help --topic --amount --size" ;;
    cleanExpiredCQ)
        options="--namesrvAddr --json --help --brokerAddr --clusterName" ;;
    cleanUnusedTopic)
        options="--namesrvAddr --json --help --brokerAddr --clusterName" ;;
    cloneGroupOffset)
        options="--namesrvAddr --json --help --srcGroup --destGroup --topic --offline --dry-run" ;;
    clusterList)
        options="--namesrvAddr --json --help --clusterName --moreStats --interval" ;;
    clusterRT)
        case $before in -p|--printLog) mapfile -t COMPREPLY < <(compgen -W "true false" -- "$word"); return ;; esac
        options="--namesrvAddr --json --help --amount --size --cluster --printLog --machineRoom --interval" ;;
    consumeMessage)
        options="--namesrvAddr --json --help --topic --consumerGroup --expr --sql --from --count --idle-exit --body-only --brokerName --queueId --offset --beginTimestamp --endTimestamp" ;;
    consumerConnection)
        options="--namesrvAddr --json --help --consumerGroup --brokerAddr --clusterName" ;;
    consumerProgress)
        case $before in -s|--showClientIP) mapfile -t COMPREPLY < <(compgen -W "true false" -- "$word"); return ;; esac
        options="--namesrvAddr --json --help --groupName --topic --showClientIP" ;;
    consumerStatus)
        options="--namesrvAddr --json --help --consumerGroup --clientId --brokerAddr --clusterName" ;;
    deleteExpiredCommitLog)
        options="--namesrvAddr --json --help --brokerAddr --clusterName" ;;
    deleteKvConfig)
        options="--namesrvAddr --json --help --namespace --key" ;;
    deleteSubGroup)
        case $before in -r|--removeOffset) mapfile -t COMPREPLY < <(compgen -W "true false" -- "$word"); return ;; esac
        options="--namesrvAddr --json --help --groupName --brokerAddr --clusterName --removeOffset" ;;
    deleteTopic)
        options="--namesrvAddr --json --help --topic --clusterName" ;;
    dlqList)
        options="--namesrvAddr --json --help --group --count" ;;
    dlqRedrive)
        options="--namesrvAddr --json --help --group --msgId --all --to --dry-run --again" ;;
    exportConfigs)
        case $before in -f|--filePath) mapfile -t COMPREPLY < <(compgen -d -- "$word"); return ;; esac
        options="--namesrvAddr --json --help --clusterName --filePath" ;;
    exportMetadata)
        case $before in -f|--filePath) mapfile -t COMPREPLY < <(compgen -d -- "$word"); return ;; esac
        options="--namesrvAddr --json --help --brokerAddr --clusterName --filePath --topic --subscriptionGroup --specialTopic" ;;
    exportMetrics)
        case $before in -f|--filePath) mapfile -t COMPREPLY < <(compgen -d -- "$word"); return ;; esac
        options="--namesrvAddr --json --help --clusterName --filePath" ;;
    forceOpen)
        options="--namesrvAddr --json --help --brokerName --address --discard-slave --yes" ;;
    getBrokerConfig)
        options="--namesrvAddr --json --help --brokerAddr --clusterName" ;;
    getConsumerConfig)
        options="--namesrvAddr --json --help --groupName" ;;
    getKvConfig)
        options="--namesrvAddr --json --help --namespace --key" ;;
    getNamesrvConfig)
        options="--namesrvAddr --json --help" ;;
    haStatus)
        options="--namesrvAddr --json --help --brokerName --clusterName" ;;
    printMsg)
        case $before in -d|--printBody) mapfile -t COMPREPLY < <(compgen -W "true false" -- "$word"); return ;; esac
        options="--namesrvAddr --json --help --topic --subExpression --beginTimestamp --endTimestamp --charsetName --printBody" ;;
    printMsgByQueue)
        case $before in -p|--printMsg|-f|--calculate|-d|--printBody) mapfile -t COMPREPLY < <(compgen -W "true false" -- "$word"); return ;; esac
        options="--namesrvAddr --json --help --topic --brokerName --queueId --printMsg --calculate --subExpression --beginTimestamp --endTimestamp --charsetName --printBody" ;;
    producer)
        options="--namesrvAddr --json --help --brokerAddr" ;;
    producerConnection)
        options="--namesrvAddr --json --help --producerGroup --topic" ;;
    queryCq)
        options="--namesrvAddr --json --help --topic --queue --index --count --broker --consumer" ;;
    queryMsgById)
        case $before in -s|--sendMessage) mapfile -t COMPREPLY < <(compgen -W "true false" -- "$word"); return ;; esac
        options="--namesrvAddr --json --help --msgId --sendMessage --consumerGroup --clientId" ;;
    queryMsgByKey)
        options="--namesrvAddr --json --help --topic --msgKey --beginTimestamp --endTimestamp --maxNum" ;;
    queryMsgByOffset)
        options="--namesrvAddr --json --help --topic --brokerName --queueId --offset" ;;
    queryMsgByUniqueKey)
        options="--namesrvAddr --json --help --msgId --topic --showAll --consumerGroup --clientId" ;;
    queryMsgTraceById)
        options="--namesrvAddr --json --help --msgId --traceTopic" ;;
    rejoin)
        options="--namesrvAddr --json --help --brokerName --brokerId --address --yes" ;;
    resetOffsetByTime)
        case $before in -f|--force) mapfile -t COMPREPLY < <(compgen -W "true false" -- "$word"); return ;; esac
        options="--namesrvAddr --json --help --group --topic --timestamp --offset --brokerName --queueId --force --cplus --dry-run" ;;
    resumeCheckHalfMessage)
        options="--namesrvAddr --json --help --msgId" ;;
    sendMessage)
        case $before in -m|--msgTraceEnable) mapfile -t COMPREPLY < <(compgen -W "true false" -- "$word"); return ;; esac
        case $before in --file) mapfile -t COMPREPLY < <(compgen -f -- "$word"); return ;; esac
        options="--namesrvAddr --json --help --topic --body --file --lines --tags --keys --property --delay-level --deliver-at --brokerName --qid --msgTraceEnable" ;;
    sendMsgStatus)
        options="--namesrvAddr --json --help --brokerName --messageSize --count" ;;
    skipAccumulatedMessage)
        case $before in -f|--force) mapfile -t COMPREPLY < <(compgen -W "true false" -- "$word"); return ;; esac
        options="--namesrvAddr --json --help --group --topic --force --dry-run" ;;
    statsAll)
        options="--namesrvAddr --json --help --activeTopic --topic" ;;
    subscriptionCheck)
        options="--namesrvAddr --json --help --groupName" ;;
    topicClusterList)
        options="--namesrvAddr --json --help --topic" ;;
    topicList)
        options="--namesrvAddr --json --help --clusterName" ;;
    topicRoute)
        options="--namesrvAddr --json --help --topic --list" ;;
    topicStatus)
        options="--namesrvAddr --json --help --topic" ;;
    transactions)
        options="--namesrvAddr --json --help --brokerAddr --clusterName --discarded --maxNum" ;;
    updateBrokerConfig)
        options="--namesrvAddr --json --help --brokerAddr --clusterName --key --value" ;;
    updateKvConfig)
        options="--namesrvAddr --json --help --namespace --key --value" ;;
    updateOrderConf)
        case $before in -f|--force) mapfile -t COMPREPLY < <(compgen -W "true false" -- "$word"); return ;; esac
        options="--namesrvAddr --json --help --topic --method --orderConf --force" ;;
    updateSubGroup)
        case $before in -s|--consumeEnable|-m|--consumeFromMinEnable|-d|--consumeBroadcastEnable|-a|--notifyConsumerIdsChanged) mapfile -t COMPREPLY < <(compgen -W "true false" -- "$word"); return ;; esac
        options="--namesrvAddr --json --help --groupName --brokerAddr --clusterName --consumeEnable --consumeFromMinEnable --consumeBroadcastEnable --retryQueueNums --retryMaxTimes --brokerId --whichBrokerWhenConsumeSlowly --notifyConsumerIdsChanged --subscriptionConsistency" ;;
    updateTopic)
        case $before in -o|--order) mapfile -t COMPREPLY < <(compgen -W "true false" -- "$word"); return ;; esac
        options="--namesrvAddr --json --help --topic --brokerAddr --clusterName --readQueueNums --writeQueueNums --perm --order" ;;
    updateTopicPerm)
        options="--namesrvAddr --json --help --topic --brokerAddr --clusterName --perm" ;;
    why)
        options="--namesrvAddr --json --help --msgId --key --group --topic" ;;
    wipeWritePerm)
        options="--namesrvAddr --json --help --brokerName" ;;
    esac
    mapfile -t COMPREPLY < <(compgen -W "$options" -- "$word")
}
complete -o default -F _mqadmin mqadmin
