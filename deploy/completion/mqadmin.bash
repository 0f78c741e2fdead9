# bash completion for mqadmin, printed by: mqadmin --completion
_mqadmin() {
    local word=${COMP_WORDS[COMP_CWORD]}
    if [ "$COMP_CWORD" -eq 1 ]; then
        mapfile -t COMPREPLY < <(compgen -W "help addWritePerm brokerStatus clusterList consumeMessage consumerConnection consumerProgress deleteKvConfig deleteSubGroup deleteTopic forceOpen getBrokerConfig getKvConfig haStatus queryMsgById queryMsgByKey queryMsgByOffset rejoin sendMessage topicList topicRoute topicStatus updateKvConfig updateSubGroup updateTopic wipeWritePerm" -- "$word")
        return
    fi
    case ${COMP_WORDS[1]} in
    addWritePerm) mapfile -t COMPREPLY < <(compgen -W "--namesrvAddr --json --help --brokerName" -- "$word") ;;
    brokerStatus) mapfile -t COMPREPLY < <(compgen -W "--namesrvAddr --json --help --brokerAddr --brokerId --clusterName" -- "$word") ;;
    clusterList) mapfile -t COMPREPLY < <(compgen -W "--namesrvAddr --json --help --clusterName" -- "$word") ;;
    consumeMessage) mapfile -t COMPREPLY < <(compgen -W "--namesrvAddr --json --help --topic --consumerGroup --expr --sql --from --count --idle-exit --body-only --brokerName --queueId --offset" -- "$word") ;;
    consumerConnection) mapfile -t COMPREPLY < <(compgen -W "--namesrvAddr --json --help --consumerGroup --brokerAddr --clusterName" -- "$word") ;;
    consumerProgress) mapfile -t COMPREPLY < <(compgen -W "--namesrvAddr --json --help --groupName --topic" -- "$word") ;;
    deleteKvConfig) mapfile -t COMPREPLY < <(compgen -W "--namesrvAddr --json --help --namespace --key" -- "$word") ;;
    deleteSubGroup) mapfile -t COMPREPLY < <(compgen -W "--namesrvAddr --json --help --groupName --brokerAddr --clusterName --removeOffset" -- "$word") ;;
    deleteTopic) mapfile -t COMPREPLY < <(compgen -W "--namesrvAddr --json --help --topic --clusterName" -- "$word") ;;
    forceOpen) mapfile -t COMPREPLY < <(compgen -W "--namesrvAddr --json --help --brokerName --address --discard-slave --yes" -- "$word") ;;
    getBrokerConfig) mapfile -t COMPREPLY < <(compgen -W "--namesrvAddr --json --help --brokerAddr --clusterName" -- "$word") ;;
    getKvConfig) mapfile -t COMPREPLY < <(compgen -W "--namesrvAddr --json --help --namespace --key" -- "$word") ;;
    haStatus) mapfile -t COMPREPLY < <(compgen -W "--namesrvAddr --json --help --brokerName --clusterName" -- "$word") ;;
    queryMsgById) mapfile -t COMPREPLY < <(compgen -W "--namesrvAddr --json --help --msgId" -- "$word") ;;
    queryMsgByKey) mapfile -t COMPREPLY < <(compgen -W "--namesrvAddr --json --help --topic --msgKey --beginTimestamp --endTimestamp --maxNum" -- "$word") ;;
    queryMsgByOffset) mapfile -t COMPREPLY < <(compgen -W "--namesrvAddr --json --help --topic --brokerName --queueId --offset" -- "$word") ;;
    rejoin) mapfile -t COMPREPLY < <(compgen -W "--namesrvAddr --json --help --brokerName --brokerId --address --yes" -- "$word") ;;
    sendMessage) mapfile -t COMPREPLY < <(compgen -W "--namesrvAddr --json --help --topic --body --file --lines --tags --keys --property --brokerName --qid" -- "$word") ;;
    topicList) mapfile -t COMPREPLY < <(compgen -W "--namesrvAddr --json --help --clusterName" -- "$word") ;;
    topicRoute) mapfile -t COMPREPLY < <(compgen -W "--namesrvAddr --json --help --topic --list" -- "$word") ;;
    topicStatus) mapfile -t COMPREPLY < <(compgen -W "--namesrvAddr --json --help --topic" -- "$word") ;;
    updateKvConfig) mapfile -t COMPREPLY < <(compgen -W "--namesrvAddr --json --help --namespace --key --value" -- "$word") ;;
    updateSubGroup) mapfile -t COMPREPLY < <(compgen -W "--namesrvAddr --json --help --groupName --brokerAddr --clusterName --consumeEnable --consumeFromMinEnable --consumeBroadcastEnable --retryQueueNums --retryMaxTimes --brokerId --whichBrokerWhenConsumeSlowly --notifyConsumerIdsChanged" -- "$word") ;;
    updateTopic) mapfile -t COMPREPLY < <(compgen -W "--namesrvAddr --json --help --topic --brokerAddr --clusterName --readQueueNums --writeQueueNums --perm" -- "$word") ;;
    wipeWritePerm) mapfile -t COMPREPLY < <(compgen -W "--namesrvAddr --json --help --brokerName" -- "$word") ;;
    esac
}
complete -o default -F _mqadmin mqadmin
